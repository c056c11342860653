// SPDX-License-Identifier: Apache-2.0
//
// Every product of a training step of tests/bench/step_vs_pytorch (hidden 512, intermediate 1376, 8 layers, 8 heads,
// 4 kv heads, vocabulary 32000, 1024 tokens of a rank, the head in 2 chunks of 512) by every library, on one core:
//   OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 BLIS_NUM_THREADS=1 TRIREME_BENCH_LIBRARIES=PATH:PATH products_bench
//     [--benchmark_filter=fp32]
// Prints GFLOP/s (medians of interleaved repeats; every layer has its own operands, more than the caches hold), and
// what a step loses by one library for each kind of product, and by what runs choose. PATH: a BLAS to load, with
// cblas_sgemm (OpenBLAS, BLIS; cblas_sbgemm too if it is exported) or libxsmm's libxsmm_sgemm_omp_. Products of bf16
// are not measured where a library has fp32 only.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "bench/measure.hpp"
#include "trireme/device/allocator.hpp"
#include "trireme/kernels/cast.hpp"
#include "trireme/kernels/gemm_library.hpp"

namespace trireme::products_bench {
namespace {

using kernels::GemmChoice;
using kernels::GemmLibrary;

enum class Kind { forward, backward_input, backward_weight };
constexpr std::array kinds{Kind::forward, Kind::backward_input, Kind::backward_weight};
constexpr std::array kind_names{"forward", "backward_input", "backward_weight"};

/// A product and how often a step has it.
struct Shape {
  const char* name;
  std::int64_t tokens, out, in;
  int times;
  bool adds;         ///< forward adds a residual
  bool accumulates;  ///< into the weight's gradient
  [[nodiscard]] double flops() const { return 2.0 * static_cast<double>(tokens * out * in); }
};
constexpr std::array shapes{
    Shape{"qkv", 1024, 1024, 512, 8, false, false}, Shape{"output", 1024, 512, 512, 8, true, false},
    Shape{"gate_up", 1024, 2752, 512, 8, false, false}, Shape{"down", 1024, 512, 1376, 8, true, false},
    Shape{"head", 512, 32000, 512, 2, false, true}};

struct Operands {
  at::Tensor x, w, residual, d_y, grad;
  Operands(const Shape& s, at::ScalarType type)
      : x(at::randn({s.tokens, s.in}).to(type)),
        w(at::randn({s.out, s.in}).to(type)),
        residual(s.adds ? at::randn({s.tokens, s.out}).to(type) : at::Tensor()),
        d_y(at::randn({s.tokens, s.out}).to(type)),
        grad(at::zeros({s.out, s.in})) {}
};

/// Computes one product: the result, or the gradient that was written.
class Library {
 public:
  explicit Library(std::string name) : name_(std::move(name)) {}
  virtual ~Library() = default;
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] virtual at::Tensor run(Kind kind, const Shape& shape, const Operands& o) const = 0;

 private:
  std::string name_;
};

class Ours : public Library {
 public:
  explicit Ours(const kernels::NamedLibrary& named) : Library(std::string(named.name)), library_(named.library) {}
  [[nodiscard]] at::Tensor run(Kind kind, const Shape& s, const Operands& o) const override {
    if (kind == Kind::backward_input) return linear_backward_input(library_, o.d_y, o.w);
    if (kind == Kind::forward) {
      return s.adds ? linear_add(library_, o.x, o.w, o.residual) : linear(library_, o.x, o.w);
    }
    linear_backward_weight(library_, o.d_y, o.x, {.tensor = o.grad, .accumulate = s.accumulates});
    return o.grad;
  }

 private:
  GemmLibrary library_;
};

/// c = op(a) op(b) + beta c, all row by row; [m, n], k terms.
struct Call {
  bool transpose_a, transpose_b;
  at::Tensor a, b, c;
  float beta;
  [[nodiscard]] int m() const { return static_cast<int>(c.size(0)); }
  [[nodiscard]] int n() const { return static_cast<int>(c.size(1)); }
  [[nodiscard]] int k() const { return static_cast<int>(a.size(transpose_a ? 0 : 1)); }
};

template <class T>
using Cblas = void (*)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const T* a, int lda,
                       const T* b, int ldb, float beta, float* c, int ldc);
using Fortran = void (*)(const char* trans_a, const char* trans_b, const int* m, const int* n, const int* k,
                         const float* alpha, const float* a, const int* lda, const float* b, const int* ldb,
                         const float* beta, float* c, const int* ldc);

template <class T>
void call_cblas(Cblas<T> gemm, const Call& x) {
  constexpr int row_major = 101, plain = 111, transposed = 112;
  gemm(row_major, x.transpose_a ? transposed : plain, x.transpose_b ? transposed : plain, x.m(), x.n(), x.k(), 1,
       static_cast<const T*>(x.a.const_data_ptr()), static_cast<int>(x.a.size(1)),
       static_cast<const T*>(x.b.const_data_ptr()), static_cast<int>(x.b.size(1)), x.beta,
       x.c.mutable_data_ptr<float>(), x.n());
}

/// Calls a column-major BLAS: c^T = op(b)^T op(a)^T. libxsmm takes no transposed first operand: b is copied then.
void call_fortran(Fortran gemm, const Call& x) {
  const at::Tensor b = x.transpose_b ? x.b.t().contiguous() : x.b;
  const int m = x.m(), n = x.n(), k = x.k(), lda = static_cast<int>(x.a.size(1)), ldb = static_cast<int>(b.size(1));
  const float one = 1;
  gemm("N", x.transpose_a ? "T" : "N", &n, &m, &k, &one, b.const_data_ptr<float>(), &ldb, x.a.const_data_ptr<float>(),
       &lda, &x.beta, x.c.mutable_data_ptr<float>(), &n);
}

/// A BLAS that is no part of the program.
class Loaded : public Library {
 public:
  explicit Loaded(const std::string& path)
      : Library(std::filesystem::path(path).stem().stem().string()),
        handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND)) {
    if (handle_ == nullptr) throw std::runtime_error(dlerror());
    find("cblas_sgemm", fp32_), find("cblas_sbgemm", bf16_), find("libxsmm_sgemm_omp_", fortran_);
    const char* (*openblas)() = nullptr, *(*version)() = nullptr;
    find("openblas_get_config", openblas), find("bli_info_get_version_str", version);
    if (openblas != nullptr) fmt::print("{}: {}\n", path, openblas());
    void (*initialize)() = nullptr;
    int (*architecture)() = nullptr;
    const char* (*text)(int) = nullptr;
    find("bli_init", initialize), find("bli_arch_query_id", architecture), find("bli_arch_string", text);
    if (version != nullptr && architecture != nullptr && text != nullptr && initialize != nullptr) {
      initialize();
      fmt::print("{}: BLIS {} for {}\n", path, version(), text(architecture()));
    }
  }
  [[nodiscard]] at::Tensor run(Kind kind, const Shape& s, const Operands& o) const override {
    const bool bf16 = o.x.scalar_type() == at::kBFloat16;
    if (bf16 ? bf16_ == nullptr : fp32_ == nullptr && fortran_ == nullptr) throw std::runtime_error("not in it");
    at::Tensor c = o.grad;
    float beta = s.accumulates ? 1 : 0;
    if (kind != Kind::backward_weight) {
      c = at::empty({s.tokens, kind == Kind::forward ? s.out : s.in}, at::kFloat);
      beta = kind == Kind::forward && s.adds ? 1 : 0;
      if (beta != 0) kernels::cast(o.residual, c);
    }
    const Call call = kind == Kind::forward          ? Call{false, true, o.x, o.w, c, beta}
                      : kind == Kind::backward_input ? Call{false, false, o.d_y, o.w, c, beta}
                                                     : Call{true, false, o.d_y, o.x, c, beta};
    bf16 ? call_cblas(bf16_, call) : fp32_ != nullptr ? call_cblas(fp32_, call) : call_fortran(fortran_, call);
    return bf16 && kind != Kind::backward_weight ? c.to(at::kBFloat16) : c;
  }

 private:
  template <class Function>
  void find(const char* symbol, Function*& function) const {
    void* found = dlsym(handle_, symbol);
    if (found == nullptr) found = dlsym(handle_, fmt::format("scipy_{}", symbol).c_str());
    function = reinterpret_cast<Function*>(found);
  }
  void* handle_;  ///< open until the process ends: some libraries have threads
  Cblas<float> fp32_ = nullptr;
  Cblas<c10::BFloat16> bf16_ = nullptr;
  Fortran fortran_ = nullptr;
};

std::vector<std::unique_ptr<Library>> libraries() {
  std::vector<std::unique_ptr<Library>> all;
  for (const auto& named : kernels::gemm_libraries) all.push_back(std::make_unique<Ours>(named));
  const char* paths = std::getenv("TRIREME_BENCH_LIBRARIES");
  std::istringstream list(paths == nullptr ? "" : paths);
  for (std::string path; std::getline(list, path, ':');) all.push_back(std::make_unique<Loaded>(path));
  return all;
}

/// Throws if the library cannot compute the product, or computes another one than at::mm.
void check(const Library& library, Kind kind, const Shape& shape, const Operands& o) {
  o.grad.zero_();
  const at::Tensor result = library.run(kind, shape, o).to(at::kFloat, false, true);
  o.grad.zero_();
  const at::Tensor expected = Ours(kernels::gemm_libraries[0]).run(kind, shape, o).to(at::kFloat);
  const auto difference = result.sub(expected).norm().item<double>() / expected.norm().item<double>();
  if (!(difference < 0.02)) throw std::runtime_error("wrong");
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Seconds of each library; infinite if it cannot.
std::vector<double> measure(const std::vector<std::unique_ptr<Library>>& all, Kind kind, const Shape& shape,
                            at::ScalarType type) {
  constexpr std::size_t sets = 8, repeats = 17;
  std::vector<Operands> operands;
  for (std::size_t i = 0; i < (shape.times < 8 ? 2 : sets); ++i) operands.emplace_back(shape, type);
  std::vector<at::Tensor> results(operands.size());  // every layer's is kept
  std::vector<std::vector<double>> seconds(all.size());
  std::vector<double> spent(all.size());  // infinite if it cannot
  for (std::size_t l = 0; l < all.size(); ++l) {
    try {
      check(*all[l], kind, shape, operands[0]);
    } catch (const std::exception&) {
      spent[l] = std::numeric_limits<double>::infinity();
    }
  }
  for (std::size_t repeat = 0; repeat < repeats; ++repeat) {
    for (std::size_t l = 0; l < all.size(); ++l) {
      const std::size_t layer = (repeat + l) % operands.size();
      if (spent[l] > 3) continue;  // some are a hundred times slower than the others
      seconds[l].push_back(bench::seconds([&] { results[layer] = all[l]->run(kind, shape, operands[layer]); }));
      spent[l] += seconds[l].back();
    }
  }
  std::vector<double> result;
  for (std::size_t l = 0; l < all.size(); ++l) result.push_back(std::isinf(spent[l]) ? spent[l] : median(seconds[l]));
  return result;
}

/// The place of the chosen library in `gemm_libraries`.
std::size_t chosen(const GemmChoice& choice, Kind kind, const Shape& shape, at::ScalarType type) {
  const GemmChoice::Products& products = choice.of(type, shape.out, shape.in);
  return static_cast<std::size_t>(kind == Kind::forward          ? products.forward
                                  : kind == Kind::backward_input ? products.backward_input
                                                                 : products.backward_weight);
}

void step(benchmark::State& state, at::ScalarType type) {
  const auto all = libraries();
  const std::size_t own = kernels::gemm_libraries.size();
  for (auto _ : state) {
    std::map<std::string, int> choices;
    for (int i = 0; i < 9; ++i) ++choices[to_text(kernels::measure_gemm())];
    kernels::set_gemm_choice(kernels::parse_gemm_choice(choices.begin()->first));  // for its pairs
    fmt::print("{:16}{:9}{:>8}", "GFLOP/s", "", "ms/step");
    for (const auto& library : all) fmt::print("{:>12.11}", library->name());
    fmt::print("\n");
    std::array<std::array<std::vector<double>, shapes.size()>, kinds.size()> measured;  // seconds by each library
    std::array<double, kinds.size()> by_shape{}, by_own_shape{};
    for (const Kind kind : kinds) {
      const auto k = static_cast<std::size_t>(kind);
      std::vector<double> of_kind(all.size());  // seconds of a step by each library
      for (std::size_t i = 0; const Shape& shape : shapes) {
        const auto& seconds = measured[k][i++] = measure(all, kind, shape, type);
        const double best = *std::min_element(seconds.begin(), seconds.end());
        fmt::print("{:16}{:9}{:8.1f}", kind_names[k], shape.name, best * shape.times * 1e3);
        for (const double s : seconds)
          fmt::print("{:>12}",
                     std::isinf(s) ? "-" : fmt::format("{:.1f}{}", shape.flops() / s * 1e-9, s == best ? "*" : " "));
        fmt::print("\n");
        for (std::size_t l = 0; l < all.size(); ++l) of_kind[l] += seconds[l] * shape.times;
        by_shape[k] += best * shape.times;
        by_own_shape[k] +=
            *std::min_element(seconds.begin(), seconds.begin() + static_cast<std::ptrdiff_t>(own)) * shape.times;
      }
      fmt::print("{:16}{:9}{:8.1f}", kind_names[k], "% more", by_shape[k] * 1e3);
      for (const double s : of_kind) fmt::print("{:>11.1f} ", (s / by_shape[k] - 1) * 100);
      fmt::print("\n");
    }
    const auto sum = [](const auto& values) { return values[0] + values[1] + values[2]; };
    fmt::print("products of a step: {:.1f} ms by the fastest for every shape, {:.1f} ms of at, onednn and blocked\n",
               sum(by_shape) * 1e3, sum(by_own_shape) * 1e3);
    for (const auto& [text, count] : choices) {
      const GemmChoice choice = kernels::parse_gemm_choice(text);
      double time = 0;
      for (const Kind kind : kinds)
        for (std::size_t i = 0; i < shapes.size(); ++i)
          time += measured[static_cast<std::size_t>(kind)][i][chosen(choice, kind, shapes[i], type)] * shapes[i].times;
      fmt::print("chosen {} of 9 times: {}: {:.1f} ms, {:.1f}% more than by shape of the three\n", count, text,
                 time * 1e3, (time / sum(by_own_shape) - 1) * 100);
    }
  }
}

const bool registered = [] {
  device::install_allocator();
  for (const auto& [name, type] : {std::pair{"products/fp32", at::kFloat}, {"products/bf16", at::kBFloat16}}) {
    benchmark::RegisterBenchmark(name, step, type)->Iterations(1)->Unit(benchmark::kSecond);
  }
  return true;
}();

}  // namespace
}  // namespace trireme::products_bench
