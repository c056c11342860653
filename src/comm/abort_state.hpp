// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/comm/last_word.hpp"

namespace trireme::comm {

/// What `abort_job` asks before it speaks, from any thread; null: nothing. It must outlive that.
void set_last_word(const LastWord* word);

}  // namespace trireme::comm
