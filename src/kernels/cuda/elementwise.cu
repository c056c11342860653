// SPDX-License-Identifier: Apache-2.0
//
// RoPE, SwiGLU, GeGLU, GELU and biases: every thread has its own elements. A result may overwrite an operand that the
// header of the function allows: a thread reads all it needs before it writes.
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/launchers.hpp"

namespace trireme::kernels::cuda {
namespace {

template <class T>
struct Rotate {
  RotateHeads<T> of;
  /// i counts the pairs of a row's heads as if they lay side by side.
  template <int n>
  __device__ void run(std::int64_t row, std::int64_t i) const {
    const auto [x, cos, sin, half, head_dim, seq_len, adjacent, sign] = of;
    const auto at = static_cast<unsigned>(i), half32 = static_cast<unsigned>(half);
    const unsigned head = at / half32, offset = at % half32;
    const std::int64_t angle = row % seq_len * half + offset;
    T* first = x.data + row * x.stride + head * head_dim + (adjacent ? 2 * offset : offset);
    if (adjacent) {  // one pair at a time
      const float c = cos[angle], s = sign * sin[angle];
      const float u = static_cast<float>(first[0]), v = static_cast<float>(first[1]);
      first[0] = static_cast<T>(u * c - v * s);
      first[1] = static_cast<T>(v * c + u * s);
      return;
    }
    const auto a = load<n>(first), b = load<n>(first + half);
    const auto cosines = load<n>(cos + angle), sines = load<n>(sin + angle);
    Pack<T, n> to_a, to_b;
    for (int k = 0; k < n; ++k) {
      const float c = cosines.at[k], s = sign * sines.at[k];
      const float u = static_cast<float>(a.at[k]), v = static_cast<float>(b.at[k]);
      to_a.at[k] = static_cast<T>(u * c - v * s);
      to_b.at[k] = static_cast<T>(v * c + u * s);
    }
    store<n>(first, to_a);
    store<n>(first + half, to_b);
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
  const bool whole =
      fits<n>(a.x) && fits<n>(a.cos) && fits<n>(a.sin) && a.half % n == 0 && a.head_dim % n == 0 && !a.adjacent;
  run<T>("rotate", whole, a.x.rows, a.x.width / a.head_dim * a.half, Rotate<T>{a});
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
template void swiglu(Matrix<const float>, Matrix<float>);
template void swiglu_backward(Matrix<const float>, Matrix<const float>, Matrix<float>, Matrix<float>);
template void geglu_tanh(Matrix<const float>, Matrix<float>);
template void geglu_tanh_backward(Matrix<const float>, Matrix<const float>, Matrix<float>, Matrix<float>);
template void gelu_tanh(Matrix<const float>, Matrix<float>);
template void gelu_tanh_backward(Matrix<const float>, Matrix<const float>, Matrix<float>, Matrix<float>);
template void add_bias(Matrix<float>, const float*);
template void rotate(const RotateHeads<c10::BFloat16>&);
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
