// SPDX-License-Identifier: Apache-2.0
//
// RoPE, SwiGLU, GeGLU, GELU and biases: every thread has its own elements. A result may overwrite an operand that the
// header of the function allows: a thread reads all it needs before it writes.
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/launchers.hpp"

namespace trireme::kernels::cuda {
namespace {

/// n pairs of a head's elements turned by their angles: with those `half` further on, or neighbours, 2n side by side.
template <int n, bool adjacent, class T>
__device__ void turn(const T* from, T* to, std::int64_t offset, std::int64_t half, const float* cos, const float* sin,
                     float sign) {
  const std::int64_t first = adjacent ? 2 * offset : offset, second = first + (adjacent ? n : half);
  const auto a = load<n>(from + first), b = load<n>(from + second);
  const auto cosines = load<n>(cos + offset), sines = load<n>(sin + offset);
  Pack<T, n> to_a, to_b;
  const auto pair = [&](int k, T& x, T& y, T x0, T y0) {
    const float c = cosines.at[k], s = sign * sines.at[k];
    const float u = static_cast<float>(x0), v = static_cast<float>(y0);
    x = static_cast<T>(u * c - v * s);
    y = static_cast<T>(v * c + u * s);
  };
  if constexpr (adjacent && n > 1) {
    for (int k = 0; k < n / 2; ++k) {
      pair(k, to_a.at[2 * k], to_a.at[2 * k + 1], a.at[2 * k], a.at[2 * k + 1]);
      pair(n / 2 + k, to_b.at[2 * k], to_b.at[2 * k + 1], b.at[2 * k], b.at[2 * k + 1]);
    }
  } else {
    for (int k = 0; k < n; ++k) pair(k, to_a.at[k], to_b.at[k], a.at[k], b.at[k]);
  }
  store<n>(to + first, to_a);
  store<n>(to + second, to_b);
}

template <class T, bool adjacent>
struct Rotate {
  RotateHeads<T> of;
  /// i counts the pairs of a row's heads as if they were contiguous.
  template <int n>
  __device__ void run(std::int64_t row, std::int64_t i) const {
    const auto [x, cos, sin, half, head_dim, seq_len, neighbours, sign] = of;
    const auto at = static_cast<unsigned>(i), half32 = static_cast<unsigned>(half);
    const unsigned head = at / half32, offset = at % half32;
    const std::int64_t angles = row % seq_len * half;
    T* const x0 = x.data + row * x.stride + head * head_dim;
    turn<n, adjacent>(x0, x0, offset, half, cos + angles, sin + angles, sign);
  }
};

/// Work on a row's heads: their pairs, and elements that are not rotated.
template <class T>
__host__ __device__ std::int64_t work_of(const HeadGradients<T>& heads, std::int64_t head_dim) {
  return heads.to.width / head_dim * (head_dim - heads.half);
}

template <class T, bool adjacent>
struct PlaceGradients {
  PlacedGradients<T> of;
  template <int n>
  __device__ void run(std::int64_t row, std::int64_t i) const {
    const std::int64_t of_q = work_of(of.q, of.head_dim), of_k = work_of(of.k, of.head_dim);
    if (i < of_q) return place<n>(of.q, row, i);
    if (i < of_q + of_k) return place<n>(of.k, row, i - of_q);
    place<n>(of.v, row, i - of_q - of_k);
  }
  template <int n>
  __device__ void place(const HeadGradients<T>& heads, std::int64_t row, std::int64_t i) const {
    const std::int64_t half = heads.half;
    const auto at = static_cast<unsigned>(i), of_head = static_cast<unsigned>(of.head_dim - half);
    const unsigned head = at / of_head, offset = at % of_head;
    const auto row32 = static_cast<unsigned>(row), tokens = static_cast<unsigned>(of.seq_len);
    const std::int64_t sequence = row32 / tokens, token = row32 % tokens;
    const T* const from =
        heads.from + sequence * heads.sequence_stride + head * heads.head_stride + token * heads.token_stride;
    T* const to = heads.to.data + row * heads.to.stride + head * of.head_dim;
    if (offset >= half) return store<n>(to + half + offset, load<n>(from + half + offset));
    turn<n, adjacent>(from, to, offset, half, heads.cos + token * half, heads.sin + token * half, -1.0F);
  }
};

template <class T>
__device__ float sigmoid(float z) {
  return quotient<T>(1.0F, 1.0F + exponential<T>(-z));
}

constexpr float root_two_over_pi = 0.7978845608F, cubic = 0.044715F;

/// A gate's value and its slope.
struct Gated {
  float value, slope;
};
struct Silu {
  template <class T>
  __device__ static Gated at(float z) {
    const float s = sigmoid<T>(z), silu = z * s;
    return {silu, s + silu * (1.0F - s)};
  }
};
struct GeluTanh {
  template <class T>
  __device__ static Gated at(float z) {
    const float s = sigmoid<T>(2.0F * root_two_over_pi * (z + cubic * z * z * z));
    return {z * s, s + z * s * (1.0F - s) * 2.0F * root_two_over_pi * (1.0F + 3.0F * cubic * z * z)};
  }
};

/// SwiGLU or GeGLU.
template <class T, class Gate>
struct GatedUnit {
  Matrix<const T> gate_up;
  Matrix<T> out;
  template <int n>
  __device__ void run(std::int64_t row, std::int64_t i) const {
    const T* from = gate_up.data + row * gate_up.stride + i;
    const auto gate = load<n>(from), up = load<n>(from + out.width);
    Pack<T, n> y;
    for (int k = 0; k < n; ++k) {
      const float z = static_cast<float>(gate.at[k]);
      y.at[k] = static_cast<T>(Gate::template at<T>(z).value * static_cast<float>(up.at[k]));
    }
    store<n>(out.data + row * out.stride + i, y);
  }
};

template <class T, class Gate>
struct GatedUnitBackward {
  Matrix<const T> d_out, gate_up;
  Matrix<T> d_gate_up, out;
  template <int n>
  __device__ void run(std::int64_t row, std::int64_t i) const {
    const T* from = gate_up.data + row * gate_up.stride + i;
    const auto gate = load<n>(from), up = load<n>(from + out.width);
    const auto upstream = load<n>(d_out.data + row * d_out.stride + i);
    Pack<T, n> d_gate, d_up, y;
    for (int k = 0; k < n; ++k) {
      const float z = static_cast<float>(gate.at[k]), u = static_cast<float>(up.at[k]);
      const float g = static_cast<float>(upstream.at[k]);
      const Gated gated = Gate::template at<T>(z);
      d_gate.at[k] = static_cast<T>(g * u * gated.slope);
      d_up.at[k] = static_cast<T>(g * gated.value);
      y.at[k] = static_cast<T>(gated.value * u);
    }
    T* to = d_gate_up.data + row * d_gate_up.stride + i;
    store<n>(to, d_gate);
    store<n>(to + out.width, d_up);
    store<n>(out.data + row * out.stride + i, y);
  }
};

template <class T>
struct Gelu {
  Matrix<const T> d_out, x;  ///< d_out.data: null for the forward
  Matrix<T> d_x, out;
  template <int n>
  __device__ void run(std::int64_t row, std::int64_t i) const {
    const auto from = load<n>(x.data + row * x.stride + i);
    Pack<T, n> upstream{}, d, y;
    if (d_out.data != nullptr) upstream = load<n>(d_out.data + row * d_out.stride + i);
    for (int k = 0; k < n; ++k) {
      const float v = static_cast<float>(from.at[k]);
      const float s = sigmoid<T>(2.0F * root_two_over_pi * (v + cubic * v * v * v));
      const float slope = 2.0F * root_two_over_pi * (1.0F + 3.0F * cubic * v * v);
      d.at[k] = static_cast<T>(static_cast<float>(upstream.at[k]) * (s + v * s * (1.0F - s) * slope));
      y.at[k] = static_cast<T>(v * s);
    }
    if (d_out.data != nullptr) store<n>(d_x.data + row * d_x.stride + i, d);
    store<n>(out.data + row * out.stride + i, y);
  }
};

template <class T>
struct AddBias {
  Matrix<T> y;
  const T* bias;
  template <int n>
  __device__ void run(std::int64_t row, std::int64_t i) const {
    T* to = y.data + row * y.stride + i;
    auto value = load<n>(to);
    const auto b = load<n>(bias + i);
    for (int k = 0; k < n; ++k)
      value.at[k] = static_cast<T>(static_cast<float>(value.at[k]) + static_cast<float>(b.at[k]));
    store<n>(to, value);
  }
};

template <class T, class Body>
void run(const char* name, bool whole, std::int64_t rows, std::int64_t width, const Body& body) {
  constexpr int n = whole_pack<T>;
  whole ? for_each_pack<n>(name, rows, width, body) : for_each_pack<1>(name, rows, width, body);
}

template <class T, class Gate>
void gated(const char* name, Matrix<const T> gate_up, Matrix<T> out) {
  constexpr int n = whole_pack<T>;
  run<T>(name, fits<n>(gate_up) && fits<n>(out), out.rows, out.width, GatedUnit<T, Gate>{gate_up, out});
}

template <class T, class Gate>
void gated_backward(const char* name, Matrix<const T> d_out, Matrix<const T> gate_up, Matrix<T> d_gate_up,
                    Matrix<T> out) {
  constexpr int n = whole_pack<T>;
  run<T>(name, fits<n>(d_out) && fits<n>(gate_up) && fits<n>(d_gate_up) && fits<n>(out), out.rows, out.width,
         GatedUnitBackward<T, Gate>{d_out, gate_up, d_gate_up, out});
}

}  // namespace

template <class T>
void rotate(const RotateHeads<T>& a) {
  constexpr int n = whole_pack<T>;
  const bool whole = fits<n>(a.x) && fits<n>(a.cos) && fits<n>(a.sin) && a.half % n == 0 && a.head_dim % n == 0;
  const std::int64_t pairs = a.x.width / a.head_dim * a.half;
  a.adjacent ? run<T>("rotate", whole, a.x.rows, pairs, Rotate<T, true>{a})
             : run<T>("rotate", whole, a.x.rows, pairs, Rotate<T, false>{a});
}

template <class T>
void place_gradients(const PlacedGradients<T>& a) {
  constexpr int n = whole_pack<T>;
  bool whole = a.head_dim % n == 0;
  for (const HeadGradients<T>* heads : {&a.q, &a.k, &a.v})
    whole = whole && fits<n>(heads->from) && fits<n>(heads->to) && fits<n>(heads->cos) && fits<n>(heads->sin) &&
            heads->half % n == 0 && heads->sequence_stride % n == 0 && heads->head_stride % n == 0 &&
            heads->token_stride % n == 0;
  const std::int64_t work = work_of(a.q, a.head_dim) + work_of(a.k, a.head_dim) + work_of(a.v, a.head_dim);
  a.adjacent ? run<T>("place_gradients", whole, a.q.to.rows, work, PlaceGradients<T, true>{a})
             : run<T>("place_gradients", whole, a.q.to.rows, work, PlaceGradients<T, false>{a});
}

template <class T>
void swiglu(Matrix<const T> gate_up, Matrix<T> out) {
  gated<T, Silu>("swiglu", gate_up, out);
}

template <class T>
void swiglu_backward(Matrix<const T> d_out, Matrix<const T> gate_up, Matrix<T> d_gate_up, Matrix<T> out) {
  gated_backward<T, Silu>("swiglu_backward", d_out, gate_up, d_gate_up, out);
}

template <class T>
void geglu_tanh(Matrix<const T> gate_up, Matrix<T> out) {
  gated<T, GeluTanh>("geglu_tanh", gate_up, out);
}

template <class T>
void geglu_tanh_backward(Matrix<const T> d_out, Matrix<const T> gate_up, Matrix<T> d_gate_up, Matrix<T> out) {
  gated_backward<T, GeluTanh>("geglu_tanh_backward", d_out, gate_up, d_gate_up, out);
}

template <class T>
void gelu_tanh(Matrix<const T> x, Matrix<T> out) {
  constexpr int n = whole_pack<T>;
  run<T>("gelu_tanh", fits<n>(x) && fits<n>(out), x.rows, x.width, Gelu<T>{{}, x, {}, out});
}

template <class T>
void gelu_tanh_backward(Matrix<const T> d_out, Matrix<const T> x, Matrix<T> d_x, Matrix<T> out) {
  constexpr int n = whole_pack<T>;
  run<T>("gelu_tanh_backward", fits<n>(d_out) && fits<n>(x) && fits<n>(d_x) && fits<n>(out), x.rows, x.width,
         Gelu<T>{d_out, x, d_x, out});
}

template <class T>
void add_bias(Matrix<T> y, const T* bias) {
  constexpr int n = whole_pack<T>;
  run<T>("add_bias", fits<n>(y) && fits<n>(bias), y.rows, y.width, AddBias<T>{y, bias});
}

template void rotate(const RotateHeads<float>&);
template void place_gradients(const PlacedGradients<float>&);
template void swiglu(Matrix<const float>, Matrix<float>);
template void swiglu_backward(Matrix<const float>, Matrix<const float>, Matrix<float>, Matrix<float>);
template void geglu_tanh(Matrix<const float>, Matrix<float>);
template void geglu_tanh_backward(Matrix<const float>, Matrix<const float>, Matrix<float>, Matrix<float>);
template void gelu_tanh(Matrix<const float>, Matrix<float>);
template void gelu_tanh_backward(Matrix<const float>, Matrix<const float>, Matrix<float>, Matrix<float>);
template void add_bias(Matrix<float>, const float*);
template void rotate(const RotateHeads<c10::BFloat16>&);
template void place_gradients(const PlacedGradients<c10::BFloat16>&);
template void swiglu(Matrix<const c10::BFloat16>, Matrix<c10::BFloat16>);
template void swiglu_backward(Matrix<const c10::BFloat16>, Matrix<const c10::BFloat16>, Matrix<c10::BFloat16>,
                              Matrix<c10::BFloat16>);
template void geglu_tanh(Matrix<const c10::BFloat16>, Matrix<c10::BFloat16>);
template void geglu_tanh_backward(Matrix<const c10::BFloat16>, Matrix<const c10::BFloat16>, Matrix<c10::BFloat16>,
                                  Matrix<c10::BFloat16>);
template void gelu_tanh(Matrix<const c10::BFloat16>, Matrix<c10::BFloat16>);
template void gelu_tanh_backward(Matrix<const c10::BFloat16>, Matrix<const c10::BFloat16>, Matrix<c10::BFloat16>,
                                 Matrix<c10::BFloat16>);
template void add_bias(Matrix<c10::BFloat16>, const c10::BFloat16*);

}  // namespace trireme::kernels::cuda
