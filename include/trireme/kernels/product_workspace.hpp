// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "trireme/base/units.hpp"

namespace trireme::kernels {

/// model::product_workspace, used by products on the calling thread's current stream of
/// `device` as long as a reference is held; graphs launched on that stream hold one. Shared by
/// all callers; charged to workspace. compute: of the products. In bf16 they are cuBLASLt's;
/// in fp32 libtorch's, which keeps its workspace permanently: it is allocated here, so that it
/// is charged alike. Null then and on a CPU. Products without it allocate their own.
[[nodiscard]] std::shared_ptr<const void> keep_product_workspace(at::Device device, DType compute);

}  // namespace trireme::kernels
