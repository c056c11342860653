// SPDX-License-Identifier: Apache-2.0
#include "trireme/kernels/cast.hpp"

#include "kernels/cuda.hpp"
#include "kernels/simd/lanes.hpp"
#include "kernels/simd/parallel.hpp"
#include "kernels/simd/rows.hpp"

namespace trireme::kernels {
namespace {

constexpr std::int64_t chunk = 1 << 14;

template <class From, class To>
void convert(const From* from, To* to, std::int64_t n) {
  parallel_chunks(n, chunk, [=](std::int64_t begin, std::int64_t end) {
    in_eights(end - begin,
              [=](std::int64_t i, auto lanes) { store(to + begin + i, load(from + begin + i, lanes), lanes); });
  });
}

template <class From>
void accumulate(const From* from, float* to, std::int64_t n) {
  parallel_chunks(n, chunk, [=](std::int64_t begin, std::int64_t end) {
    in_eights(end - begin, [=](std::int64_t i, auto lanes) {
      store(to + begin + i, load(to + begin + i, lanes) + load(from + begin + i, lanes), lanes);
    });
  });
}

void expect_alike(const at::Tensor& from, const at::Tensor& to) {
  invariant(from.numel() == to.numel() && from.is_contiguous() && to.is_contiguous(),
            "cast or add_into: the tensors differ in size or are not contiguous");
}

}  // namespace

void cast(const float* from, c10::BFloat16* to, std::int64_t n) { convert(from, to, n); }
void cast(const c10::BFloat16* from, float* to, std::int64_t n) { convert(from, to, n); }
void add_into(const float* from, float* to, std::int64_t n) { accumulate(from, to, n); }
void add_into(const c10::BFloat16* from, float* to, std::int64_t n) { accumulate(from, to, n); }

void cast(const at::Tensor& from, const at::Tensor& to) {
  expect_alike(from, to);
  if (from.is_cuda()) return cuda::cast(from, to);
  with_type(from, [&]<class From>(From) {
    with_type(to, [&]<class To>(To) {
      convert(static_cast<const From*>(from.const_data_ptr()), static_cast<To*>(to.mutable_data_ptr()), from.numel());
    });
  });
}

void add_into(const at::Tensor& from, const at::Tensor& to) {
  expect_alike(from, to);
  if (from.is_cuda()) return cuda::add_into(from, to);
  with_type(from, [&]<class From>(From) {
    accumulate(static_cast<const From*>(from.const_data_ptr()), to.mutable_data_ptr<float>(), from.numel());
  });
}

}  // namespace trireme::kernels
