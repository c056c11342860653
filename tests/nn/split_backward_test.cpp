// SPDX-License-Identifier: Apache-2.0
// The backward of layers in two parts: the bits of the whole one, what waits between them as planned, and weights'
// gradients that read no parameter.
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "nn/reference.hpp"
#include "trireme/nn/stage.hpp"

namespace trireme::nn::split_backward_test {
namespace {

using model::StageKind;

/// A decoder of each make: norms before, behind and around branches, of queries and keys, with biases; GPT-2's.
std::vector<model::Sizes> decoders() {
  std::vector<model::Sizes> all{test::odd_sizes(), test::gpt2_sizes()};
  for (const model::Decoder& decoder : std::initializer_list<model::Decoder>{
           {.qk_norm = model::QkNorm::head, .qkv_bias = true, .o_bias = true, .mlp_bias = true},
           {.pre_norm = false, .post_norm = true, .qk_norm = model::QkNorm::width},
           {.norm = model::NormKind::rms_plus_one,
           .activation = model::Activation::geglu_tanh,
           .post_norm = true,
           .residual_scale = 0.3}}) {
    all.push_back(test::odd_sizes());
    all.back().decoder = decoder;
  }
  return all;
}

Bytes sum_of(const std::vector<Bytes>& all) {
  Bytes sum;
  for (const Bytes bytes : all) sum += bytes;
  return sum;
}

TEST(SplitBackward, GivesTheBitsOfTheWholeOneAndReadsNoParametersForWeights) {
  for (const model::Sizes& sizes : decoders())
    for (const StageKind kind : {StageKind::attention, StageKind::mlp})
      for (const bool all : {false, true})
        for (const bool accumulate : {false, true}) {
          const test::Flat f = test::flat(kind, sizes, at::kFloat, accumulate);
          const Microbatch m = test::microbatch(2, 9, sizes.vocab);
          const auto stage = make_stage(kind, sizes, 9, DType::fp32, 0);
          Saved saved;
          (void)stage->forward(at::randn({18, sizes.hidden}), f.parameters, m, all ? Mode::train_keep_all : Mode::train,
                               saved);
          std::set<const void*> before;
          for (const at::Tensor& tensor : saved.tensors) before.insert(tensor.storage().data());
          const at::Tensor d = at::randn({18, sizes.hidden}), first_gradients = f.grad_buffer.clone();
          Saved waits = saved;
          const at::Tensor whole = stage->backward(d.clone(), f.parameters, f.grads, m, saved).hidden;
          const at::Tensor gradients = f.grad_buffer.clone();
          f.grad_buffer.copy_(first_gradients);
          const at::Tensor input = stage->backward_input(d.clone(), f.parameters, m, waits).hidden;
          EXPECT_TRUE(test::same_bits(f.grad_buffer, first_gradients)) << "weights wait";
          const model::Pending planned =
              model::pending_tensors(kind, sizes, 18, DType::fp32, all ? model::Keep::all : model::Keep::products);
          std::int64_t bytes = 0, fresh = 0;
          for (const at::Tensor& tensor : waits.tensors) {
            const auto size = static_cast<std::int64_t>(tensor.storage().nbytes());
            bytes += size;
            if (!before.contains(tensor.storage().data())) fresh += size;
          }
          EXPECT_EQ(Bytes{bytes}, sum_of(planned.tensors)) << static_cast<int>(kind) << all;
          EXPECT_EQ(Bytes{fresh}, planned.fresh) << static_cast<int>(kind) << all;
          f.buffer.fill_(std::numeric_limits<double>::quiet_NaN());
          stage->backward_weight(f.grads, waits);
          EXPECT_TRUE(test::same_bits(input, whole));
          EXPECT_TRUE(test::same_bits(f.grad_buffer, gradients));
        }
}

}  // namespace
}  // namespace trireme::nn::split_backward_test
