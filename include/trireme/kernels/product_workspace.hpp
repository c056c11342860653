// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "trireme/base/units.hpp"

namespace trireme::kernels {

/// model::product_workspace, from which products on the calling thread's current stream of `device` take what they need
/// for as long as anybody keeps it, as do graphs, which are launched on that stream. One for all who ask; charged to
/// workspace. compute: of the products. In bf16 they are cuBLASLt's; in fp32 libtorch's, which keeps its own for good:
/// it is asked for here, so that it is charged alike. Null then and on a CPU. Products without it allocate for
/// themselves.
[[nodiscard]] std::shared_ptr<const void> keep_product_workspace(at::Device device, DType compute);

}  // namespace trireme::kernels
