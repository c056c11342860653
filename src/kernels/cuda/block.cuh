// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/cuda/block.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/matrix.hpp"
