#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs tests/gpu.sh with simulated programs: what its steps record, and how it ends. Needs no GPU."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

TESTS = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(TESTS))
sys.dont_write_bytecode = True
import gpu_judge  # noqa: E402
from gpu_judge_test import verdicts  # noqa: E402


class Steps(unittest.TestCase):
    """tests/gpu.sh with simulated programs."""

    def run_script(self, words, programs, results="measured.jsonl", earlier="", **settings):
        """Runs gpu.sh WORDS... with simulated programs: its exit code, its output, and a file that it wrote."""
        with tempfile.TemporaryDirectory() as directory:
            folder = pathlib.Path(directory)
            (folder / "bin").mkdir()
            (folder / "measured.jsonl").write_text(earlier)
            tools = {"nvidia-smi": "echo a GPU", "compute-sanitizer": 'shift 2; exec "$@"',
                     "mpirun": 'while [[ $1 != -n ]]; do shift; done; export OMPI_COMM_WORLD_RANK=0; shift 2; exec "$@"',
                     "python": f'[[ $* != "-c import torch" ]] || exit 0; exec {sys.executable} "$@"'}
            programs = {"trireme": "echo 'ok       GPU 0            one'"} | programs
            for name, text in (tools | {f"bin/{name}": text for name, text in programs.items()}).items():
                (folder / name).write_text(f"#!/bin/bash\n{text}\n")
                (folder / name).chmod(0o755)
            environment = {"PATH": f"{folder}:/usr/bin:/bin", "OUT": directory, "bin": f"{directory}/bin", "scripts": "",
                           "wrapper": f"{TESTS}/support/one_gpu_rank.sh",
                           "python": f"{directory}/python", "GPU_BUILD": f"{directory}/bin", "GPU_PYTHON": f"{directory}/python", **settings}
            done = subprocess.run(["bash", TESTS / "gpu.sh", *words], env=environment, capture_output=True, text=True, check=False)
            return done.returncode, done.stdout + done.stderr, (folder / results).read_text()

    def run_step(self, step, programs, **settings):
        code, _, measured = self.run_script(["step", step], programs, **settings)
        return code, gpu_judge.records_of(measured)

    def test_tests_note_every_program_and_what_it_skipped(self):
        code, records = self.run_step("tests", {
            "device_gpu_tests": "echo '[==========] 3 tests from 1 test suite ran.'; echo '[  SKIPPED ] 2 tests.'",
            "kernels_gpu_tests": "echo '[==========] 1 test from 1 test suite ran.'; echo '[  SKIPPED ] 1 test.'",
            "nn_gpu_tests": "exit 3"})
        self.assertEqual(code, 1)
        by_program = [(r["program"], r["ranks"], r["code"], r["tests"], r["skipped"]) for r in records]
        self.assertEqual(by_program, [("device_gpu_tests", 1, 0, 3, 2), ("kernels_gpu_tests", 1, 0, 1, 1), ("nn_gpu_tests", 1, 3, 0, 0)])
        line = gpu_judge.judge(records).lines[0]
        self.assertEqual(line[1], "FAIL")
        self.assertIn("kernels_gpu_tests: skipped all", line[3])
        self.assertIn("nn_gpu_tests (1 ranks): 3", line[3])

    def test_ranks_that_share_the_gpu_are_a_step_of_their_own_and_begin_with_the_cases_that_differ_most(self):
        ran = "echo '[==========] 3 tests from 1 test suite ran.'; [[ $* != *filter=-* ]] || exit 9"
        code, records = self.run_step("mpi", {"comm_device_gpu_mpi_test": ran, "train_device_gpu_mpi_test": ran})
        self.assertEqual(code, 1)
        self.assertEqual([(r["program"], r["ranks"]) for r in records if r["code"] != 0],
                         [("train_device_gpu_mpi_test, others", n) for n in (1, 2, 4)])
        self.assertEqual(records[3]["program"], "train_device_gpu_mpi_test, first cases")

    def test_ranks_that_share_the_gpu_over_nccl_begin_with_nccl_alone(self):
        ran = "echo '[==========] 3 tests from 1 test suite ran.'"
        programs = {"comm_device_gpu_mpi_test": ran, "train_device_gpu_mpi_test": ran}
        code, records = self.run_step("nccl", programs | {"nccl_probe": 'echo "FAIL $1/one hangs_on_rank_1 60"; exit 3'})
        self.assertEqual(code, 1)
        self.assertEqual({r["probe"] for r in records if "probe" in r}, {"basic"}, "nothing else where the basics fail")
        self.assertEqual([r for r in records if "program" in r], [])
        self.assertEqual(verdicts(records)["NCCL alone, 2 ranks: basic"], "FAIL")
        code, records = self.run_step("nccl", programs | {"nccl_probe": 'echo "PASS $1/one 1.5,2 0.1"'})
        self.assertEqual({(r["ranks"], r["probe"]) for r in records if "probe" in r}, set(gpu_judge.NCCL_PROBES["nccl"]))
        self.assertEqual([(r["program"], r["ranks"]) for r in records if "program" in r],
                         [("comm_device_gpu_mpi_test", 2), ("train_device_gpu_mpi_test", 2)])
        self.assertEqual(verdicts(records)["NCCL alone, 2 ranks: cost"], "PASS")

    def test_a_test_that_found_no_nccl_is_a_failure_of_the_step(self):
        ran = "echo '[==========] 3 tests from 1 test suite ran.'; echo 'needs a GPU for every rank, or an NCCL_HOSTID of its own'"
        _, records = self.run_step("nccl", {"comm_device_gpu_mpi_test": ran, "train_device_gpu_mpi_test": ran,
                                            "nccl_probe": 'echo "PASS $1/one - 0.1"'})
        self.assertEqual(verdicts(records)["tests of ranks that share the GPU over NCCL"], "FAIL")

    def test_it_ends_in_the_first_second_where_doctor_sees_no_gpu(self):
        code, output, summary = self.run_script(["tests"], {"trireme": "echo 'ok       GPUs             none: no driver'"}, "summary.txt")
        self.assertEqual((code, summary), (5, ""))
        self.assertIn("none: no driver", output)
        self.assertIn("trireme doctor sees no GPU", output)

    def test_a_pack_ends_in_the_first_second_where_a_library_is_not_found(self):
        with tempfile.TemporaryDirectory() as directory:
            pack, tools, temporary = (pathlib.Path(directory, name) for name in ("pack", "tools", "tmp"))
            for folder in (pack / "bin", tools, temporary):
                folder.mkdir(parents=True)
            shown = 'echo "loads from $LD_LIBRARY_PATH"; echo "ok       GPU 0            one"'
            programs = {pack / "bin" / "trireme": shown, tools / "ldd": 'echo "libcuda.so.1 => $FOUND"',
                        tools / "python": f'[[ $* == *"import torch"* ]] && echo /torch/torch || exec {sys.executable} "$@"'}
            for program, text in programs.items():
                program.write_text(f"#!/bin/bash\n{text}\n")
                program.chmod(0o755)
            subprocess.run(["tar", "-cJf", pack / "trireme-gpu.tar.xz", "-C", pack, "bin"], check=True)

            def run(found):
                environment = {"PATH": f"{tools}:/usr/bin:/bin", "OUT": f"{directory}/out", "TMPDIR": str(temporary), "FOUND": found,
                               "GPU_PYTHON": f"{tools}/python", "LD_LIBRARY_PATH": "/mounted/driver", "GPU_SECONDS": "0"}
                done = subprocess.run(["bash", TESTS / "gpu.sh", "run", pack, "tests"], env=environment, capture_output=True, text=True, check=False)
                return done.returncode, done.stdout + done.stderr

            code, output = run("not found")
            self.assertEqual(code, 5)
            self.assertRegex(output, r"trireme cannot be started: +libcuda.so.1 => not found")
            code, output = run("/mounted/driver/libcuda.so.1")
            self.assertRegex(output, r"loads from \S+/lib:/torch/torch/lib:/mounted/driver:/usr/local/nvidia/lib64")
            self.assertIn("tests: NOT RUN, no time was left", output)

    def test_results_of_an_earlier_call_stay_and_the_steps_left_are_named(self):
        ran = {"kernels_gpu_tests": "exit 0", "optim_gpu_tests": "exit 0"}
        code, output, summary = self.run_script(["sanitizer", "curve"], ran, "summary.txt", GPU_SECONDS="60",
                                                earlier='{"step": "curve", "steps": 2000, "tail": 500, "gap": 0.001}\n')
        self.assertEqual(code, 1, output)
        self.assertIn("curve: NOT RUN, no time was left", summary)
        self.assertIn("next: tests/gpu.sh ... curve\n", summary)
        self.assertRegex(summary, r"PASS +160M")
        self.assertRegex(output.split("== summary")[0], r"PASS +compute-sanitizer")

    def test_the_sanitizer_passes_where_both_programs_do(self):
        ran = "echo '[==========] 3 tests from 1 test suite ran.'"
        code, records = self.run_step("sanitizer", {"kernels_gpu_tests": ran, "optim_gpu_tests": ran})
        self.assertEqual(code, 0)
        self.assertEqual(verdicts(records)["compute-sanitizer"], "PASS")

    def test_the_summary_says_how_steps_ended_and_then_the_verdicts(self):
        ran = "echo '[==========] 3 tests from 1 test suite ran.'"
        programs = {"kernels_gpu_tests": ran, "optim_gpu_tests": ran}
        code, output, summary = self.run_script(["sanitizer"], programs, "summary.txt")
        self.assertEqual(code, 0, output)
        self.assertRegex(summary, r"^sanitizer: passed in \d+ s\n")
        self.assertRegex(summary, r"PASS +compute-sanitizer +2 programs, none failed")
        self.assertRegex(summary, r"NOT RUN +160M")
        self.assertTrue(output.endswith(summary), "printed last")
        code, output, summary = self.run_script(["sanitizer", "kernels"], programs | {"kernels_gpu_bench": "exit 4"}, "summary.txt")
        self.assertEqual(code, 1)
        self.assertIn("kernels: FAILED with 1", summary)
        self.assertRegex(summary, r"FAIL +step kernels ends well")

    def test_kernels_hand_on_what_the_benchmark_says(self):
        rows = [{"name": "rms_norm", "ratio": 0.9}, {"name": "product"}, {"name": "adamw", "error_occurred": True, "error_message": "why"}]
        bench = f"for word; do case $word in --benchmark_out=*) echo '{json.dumps({'benchmarks': rows})}' >\"${{word#*=}}\" ;; esac; done"
        code, records = self.run_step("kernels", {"kernels_gpu_bench": bench})
        self.assertEqual(code, 1)
        self.assertEqual(verdicts(records)["bandwidth of rms_norm"], "PASS")
        self.assertEqual(verdicts(records)["adamw"], "FAIL")

    def test_limits_record_every_case_and_the_clocks(self):
        rows = [{"name": "overlap/8/products on all/iterations:1/manual_time", "iterations": 1, "real_time": 9.0, "gain": 0.25, "adamw_ms": 4.0},
                {"name": "overlap/16/products on all/iterations:1/manual_time", "error_occurred": True, "error_message": "no such part"}]
        bench = (f"[[ $* == *--benchmark_filter=^overlap/* ]] || exit 9; sleep 0.5; for word; do case $word in --benchmark_out=*) "
                 f"echo '{json.dumps({'benchmarks': rows})}' >\"${{word#*=}}\" ;; esac; done")
        smi = "while sleep 0.05; do echo '1500, 700.5, 0x0000000000000004'; echo '1700, 650.5, 0x0000000000000000'; echo '[N/A], 1, 0'; done"
        code, records = self.run_step("overlap", {"gpu_limits_bench": bench, "../nvidia-smi": smi}, scripts=f"{TESTS}/bench/step_vs_pytorch")
        self.assertEqual(code, 1)
        self.assertEqual(verdicts(records)["overlap/8/products on all"], "PASS")
        self.assertEqual(verdicts(records)["overlap measured"], "FAIL")
        clocks = next(r["clocks"] for r in records if "clocks" in r)
        self.assertAlmostEqual(clocks["reasons"]["power limit"], 0.5, delta=0.1)  # the last pair may be cut
        self.assertAlmostEqual(clocks["watts"], 675.5, delta=5)
        self.assertEqual(clocks["reasons"]["thermal"], 0.0)
        code, records = self.run_step("overlap", {"gpu_limits_bench": "exit 3"}, scripts=f"{TESTS}/bench/step_vs_pytorch")
        self.assertEqual(code, 1)
        self.assertEqual(verdicts(records)["overlap measured"], "NOT RUN")


if __name__ == "__main__":
    unittest.main()
