// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace trireme::schedule::testing {

/// Messages of verify_pipeline's checks, with the ops that they name. Most mutants are found by several.
struct Complaint {
  const char* of;
  const char* text;
};
inline constexpr Complaint complaints[] = {
    {"`put", "puts what this rank does not send"},
    {"`put", ": puts e"},
    {"`put", "puts it a second time"},
    {"`put", "in its slot"},
    {"`send", "sends what this rank does not send"},
    {"`send", "belongs to pipeline rank"},
    {"`send", ": sends it a second time"},
    {"`send", "from a slot that holds nothing"},
    {"`send", "from a slot that holds e"},
    {"`receive", "receives what this rank does not receive"},
    {"`receive", "comes from pipeline rank"},
    {"`receive", "receives it a second time"},
    {"`receive", "in its slot"},
    {"`take", "takes what this rank does not receive"},
    {"`take", "overwrites the stream of"},
    {"`take", "takes it a second time"},
    {"`take", "from a slot that holds nothing"},
    {"`take", "from a slot that holds e"},
    {"`forward", ": reads e"},
    {"`backward", ": reads e"},
    {"`forward", "overwrites the stream of"},
    {"e0 m0", "is never sent"},
    {"e0 m0", "is never taken"},
    {"the stream of m", "unread"},
    {"end of step", "never sent"},
    {"end of step", "never taken"},
    {"`put", "names m"},
    {"`clip_norm", "waits forever"},
    {"`send", "waits forever"},
    {"`receive", "waits forever"},
};

}  // namespace trireme::schedule::testing
