// SPDX-License-Identifier: Apache-2.0
#include "cli/doctor/checks.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include "cli/doctor/calibrate.hpp"

namespace trireme::cli {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

const Finding& about(const Findings& findings, const std::string& subject) {
  for (const Finding& finding : findings)
    if (finding.subject == subject) return finding;
  ADD_FAILURE() << "nothing about " << subject;
  return findings.front();
}

void expect_trouble(const Finding& finding, Verdict verdict, const std::string& found) {
  EXPECT_EQ(finding.verdict, verdict) << finding.subject;
  EXPECT_THAT(finding.found, HasSubstr(found));
  EXPECT_FALSE(finding.remedy.empty()) << finding.subject << ": every trouble has a remedy";
}

TEST(Findings, ArePrintedWithTheirRemediesAndCounted) {
  const Findings findings{
      {.subject = "MPI", .found = "Open MPI"},
      {.verdict = Verdict::warning, .subject = "binding", .found = "one core", .remedy = "more cores"},
      {.verdict = Verdict::error, .subject = "HDF5", .found = "without MPI", .remedy = "another"}};
  EXPECT_EQ(to_text(findings),
            "ok       MPI              Open MPI\n"
            "warning  binding          one core\n"
            "                          -> more cores\n"
            "ERROR    HDF5             without MPI\n"
            "                          -> another\n"
            "\n1 ok, 1 warning, 1 error\n");
  EXPECT_EQ(worst(findings), Verdict::error);
  EXPECT_EQ(worst({}), Verdict::ok);
}

MpiInfo good_mpi() {
  return {.library = "Open MPI v4.1.4",
          .thread_level = MPI_THREAD_MULTIPLE,
          .thread_level_needed = MPI_THREAD_MULTIPLE,
          .ranks = 8,
          .nodes = 2,
          .fewest_ranks_on_a_node = 4,
          .most_ranks_on_a_node = 4,
          .launched = Launched{.by = "srun", .ranks = 8}};
}

TEST(CheckMpi, FindsNothingWrongWithAGoodLaunch) {
  EXPECT_EQ(worst(check_mpi(good_mpi())), Verdict::ok);
  EXPECT_THAT(about(check_mpi(good_mpi()), "ranks").found, HasSubstr("8 ranks on 2 nodes, 4 on each"));
}

TEST(CheckMpi, NamesTheThreadLevelFoundAndNeeded) {
  MpiInfo info = good_mpi();
  info.thread_level = MPI_THREAD_FUNNELED;
  expect_trouble(about(check_mpi(info), "MPI threads"), Verdict::error,
                 "MPI_THREAD_FUNNELED, needed MPI_THREAD_MULTIPLE");
}

TEST(CheckMpi, SeesTasksThatMpiDoesNotJoin) {
  MpiInfo info = good_mpi();
  info.ranks = 1;
  expect_trouble(about(check_mpi(info), "launcher"), Verdict::error, "srun");
}

TEST(CheckMpi, SeesUnevenNodes) {
  MpiInfo info = good_mpi();
  info.fewest_ranks_on_a_node = 3;
  info.most_ranks_on_a_node = 5;
  expect_trouble(about(check_mpi(info), "ranks"), Verdict::warning, "3 to 5 on each");
}

mpi::Topology node_of(int ranks, int cores) {
  return {.host = "n", .node_ranks = ranks, .rank_cores = cores, .node_cores = cores};
}

TEST(CheckCores, FindsNothingWrongWithCoresForAll) {
  const Findings findings =
      check_cores(node_of(2, 8), {{0, {0, 1, 2, 3, 4, 5, 6, 7}}, {1, {0, 1, 2, 3, 4, 5, 6, 7}}}, 8, 4);
  EXPECT_EQ(worst(findings), Verdict::ok);
  EXPECT_THAT(about(findings, "binding").found, HasSubstr("each of 2 ranks may run on cores 0-7"));
  EXPECT_THAT(about(findings, "threads").found, HasSubstr("4 of a rank compute; communication on separate threads"));
}

TEST(CheckCores, SeesRanksBoundToACoreEachOfManyMore) {
  const Findings findings = check_cores(node_of(2, 2), {{0, {0}}, {1, {1}}}, 64, 1);
  expect_trouble(about(findings, "binding"), Verdict::warning,
                 "cores of rank 0: 0; rank 1: 1: 2 of this node's 64 cores");
  EXPECT_THAT(about(findings, "binding").remedy, HasSubstr("--bind-to none"));
}

TEST(CheckCores, SeesMoreRanksThanCores) {
  const Findings findings = check_cores(node_of(4, 2), {{0, {0, 1}}, {1, {0, 1}}, {2, {0, 1}}, {3, {0, 1}}}, 2, 1);
  expect_trouble(about(findings, "binding"), Verdict::warning, "4 ranks share 2 cores");
  EXPECT_THAT(about(findings, "threads").found, HasSubstr("no core is left"));
}

TEST(CheckCores, SeesMoreThreadsThanARankHasCores) {
  expect_trouble(about(check_cores(node_of(2, 4), {{0, {0, 1, 2}}, {1, {3}}}, 4, 2), "threads"), Verdict::warning,
                 "rank 1 has 1 core for its 2");
}

TEST(RangesText, WritesCoresAsRanges) {
  EXPECT_EQ(ranges_text({0, 1, 2, 3, 8, 10, 11}), "0-3,8,10-11");
  EXPECT_EQ(ranges_text({5}), "5");
  EXPECT_EQ(ranges_text({}), "none");
}

TEST(CheckLibraries, RequireExactlyOneOpenMpRuntime) {
  EXPECT_EQ(check_openmp({"/torch/libgomp.so.1"}).verdict, Verdict::ok);
  expect_trouble(check_openmp({"/torch/libgomp.so.1", "/usr/lib/libgomp.so.1"}), Verdict::error,
                 "/usr/lib/libgomp.so.1");
  expect_trouble(check_openmp({}), Verdict::warning, "no runtime");
}

TEST(CheckLibraries, ReportALoadedLibraryThatDiffers) {
  EXPECT_EQ(check_libtorch({"2.11.0", "2.11.0"}, "AVX512", 4).verdict, Verdict::ok);
  expect_trouble(check_libtorch({"2.11.0", "2.10.0"}, "AVX512", 4), Verdict::error,
                 "compiled with 2.11.0, loaded is 2.10.0");
  EXPECT_EQ(check_kokkos("4.7.0", "OpenMP", 4, 4).verdict, Verdict::ok);
  expect_trouble(check_kokkos("4.7.0", "Serial", 1, 4), Verdict::warning, "Serial with 1 thread, where libtorch has 4");
  EXPECT_EQ(check_hdf5({"1.10.8", "1.10.8"}, true).verdict, Verdict::ok);
  expect_trouble(check_hdf5({"1.10.8", "1.10.9"}, true), Verdict::warning, "loaded is 1.10.9");
  expect_trouble(check_hdf5({"1.10.8", "1.14.3"}, true), Verdict::error, "loaded is 1.14.3");
  EXPECT_EQ(check_hdf5({"1.10.8", "1.10.8"}, false).verdict, Verdict::ok) << "its MPI half is not used";
  EXPECT_EQ(check_hdf5({"1.10.8", "1.10.8"}, false).found, "1.10.8, serial");
}

TEST(CheckCpu, RequiresTheInstructionsOfTheBuild) {
  CpuInfo info{.name = "a CPU", .build_arch = "x86-64-v3", .avx2 = true, .avx512 = true};
  EXPECT_EQ(check_cpu(info).verdict, Verdict::ok);
  EXPECT_THAT(check_cpu(info).found, HasSubstr("AVX2, AVX-512; this build needs x86-64-v3"));
  info.avx2 = info.avx512 = false;
  expect_trouble(check_cpu(info), Verdict::error, "no AVX2");
}

TEST(CheckGpus, ShowsEachOrWhyThereIsNone) {
  EXPECT_EQ(worst(check_gpus({.gpus = {}, .reason = "no driver"}, 4)), Verdict::ok);
  EXPECT_THAT(about(check_gpus({.gpus = {}, .reason = "no driver"}, 4), "GPUs").found, HasSubstr("none: no driver"));
  device::GpuProbe two;
  for (const int index : {0, 1})
    two.gpus.push_back({.index = index, .name = "NVIDIA H200", .memory = {std::int64_t{139} << 30}, .major = 9});
  EXPECT_EQ(worst(check_gpus(two, 2)), Verdict::ok);
  EXPECT_THAT(about(check_gpus(two, 2), "GPU 1").found, HasSubstr("NVIDIA H200 with 139 GiB, compute capability 9.0"));
  expect_trouble(about(check_gpus(two, 4), "ranks and GPUs"), Verdict::warning, "4 ranks and 2 GPUs");
  two.gpus.back().major = 7;
  expect_trouble(about(check_gpus(two, 2), "GPU 1"), Verdict::warning, "7.0");
}

TEST(CheckSpeeds, ReportsTheFasterPrecision) {
  EXPECT_EQ(worst(check_speeds({2e10, 1e11, 4e11}, 1)), Verdict::ok);
  EXPECT_THAT(about(check_speeds({2e10, 1e11, 4e11}, 1), "matrix products").found,
              HasSubstr("100 GFLOP/s in fp32, 400 in bf16 with 1 thread"));
  expect_trouble(about(check_speeds({2e10, 1e11, 4e10}, 2), "matrix products"), Verdict::warning,
                 "40 in bf16 with 2 threads");
  expect_trouble(about(check_speeds({5e8, 1e11, 4e11}, 1), "memory"), Verdict::warning, "0.5 GB/s");
  expect_trouble(about(check_speeds({2.3e9, 1e11, 4e11}, 1), "memory"), Verdict::warning, "2.3 GB/s");
}

TEST(DisturbanceText, MarksAMeasurementOfABusyMachine) {
  EXPECT_EQ(disturbance_text(0.1, 1.2), "");
  EXPECT_EQ(disturbance_text(1.5, 1.2), " on a BUSY machine (others used 1.5 cores)");
  EXPECT_EQ(disturbance_text(2, 6.25),
            " on a BUSY machine (others used 2.0 cores; equal products took up to 6.2 times as long)");
}

TEST(CheckLikeness, NamesTheRankThatDiffers) {
  EXPECT_THAT(check_likeness({{0, "0.1.0 (a)", "X"}, {1, "0.1.0 (a)", "X"}}), IsEmpty());
  expect_trouble(about(check_likeness({{0, "0.1.0 (a)", "X"}, {1, "0.1.0 (b)", "X"}}), "same program"), Verdict::error,
                 "rank 1 runs 0.1.0 (b)");
  expect_trouble(about(check_likeness({{0, "0.1.0 (a)", "X"}, {7, "0.1.0 (a)", "Y"}}), "same CPU"), Verdict::warning,
                 "rank 7 has Y");
}

EnvironmentInfo good_environment() {
  return {.omp_num_threads = "4",
          .home = "/home/anna",
          .home_writable = true,
          .temporary = "/tmp",
          .temporary_writable = true,
          .shared_memory_bytes = std::int64_t{1} << 34,
          .directory = "/scratch/anna",
          .file_system = "Lustre",
          .locale = "C.UTF-8"};
}

TEST(CheckEnvironment, FindsNothingWrongWithAGoodOne) {
  EXPECT_EQ(worst(check_environment(good_environment(), 8, 2)), Verdict::ok);
}

TEST(CheckEnvironment, NamesEachTroubleWithItsRemedy) {
  EnvironmentInfo info = good_environment();
  info.omp_num_threads = "abc";
  info.home = "";
  info.home_writable = info.temporary_writable = false;
  info.shared_memory_bytes = std::int64_t{64} << 20;  // a container's default
  info.file_system = "this node's memory";
  info.shared = false;
  info.faults_armed = true;
  const Findings findings = check_environment(info, 8, 2);
  expect_trouble(about(findings, "OMP_NUM_THREADS"), Verdict::warning, "\"abc\"");
  expect_trouble(about(findings, "HOME"), Verdict::warning, "not set");
  expect_trouble(about(findings, "TMPDIR"), Verdict::warning, "/tmp cannot be written");
  expect_trouble(about(findings, "/dev/shm"), Verdict::warning, "64 MiB free");
  expect_trouble(about(findings, "working directory"), Verdict::warning, "/scratch/anna lies on this node's memory");
  EXPECT_EQ(about(check_environment(info, 8, 1), "working directory").verdict, Verdict::ok) << "one node sees it";
  expect_trouble(about(findings, "TRIREME_FAULT"), Verdict::warning, "will be injected");
}

}  // namespace
}  // namespace trireme::cli
