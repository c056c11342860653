// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "trireme/base/units.hpp"

namespace trireme::kernels {

/// model::product_workspace, from which products on the calling thread's current stream of `device` take what they need
/// as long as a reference is held, as graphs do, which are launched on that stream. Shared by all callers; charged to
/// workspace. compute: of the products. In bf16 they are cuBLASLt's; in fp32 libtorch's, which keeps its own for good:
/// it is requested here, so that it is charged alike. Null then and on a CPU. Products without it allocate for
/// themselves.
[[nodiscard]] std::shared_ptr<const void> keep_product_workspace(at::Device device, DType compute);

}  // namespace trireme::kernels
