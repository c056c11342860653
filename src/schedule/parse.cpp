// SPDX-License-Identifier: Apache-2.0
//
// Schedules from text: one op per line.
#include <algorithm>

#include "schedule/line.hpp"
#include "schedule/verbs.hpp"
#include "trireme/schedule/text.hpp"

namespace trireme::schedule {

Schedule parse(std::string_view text, const model::Model& model) {
  Schedule out;
  int number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view content = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    Line line(content, ++number, model);
    if (line.done() || content.starts_with('#')) continue;
    const std::string_view verb = line.take("a verb");
    if (verb == "step") {
      std::string_view count = line.take("microbatches=N");
      if (!count.starts_with("microbatches=")) line.expected("microbatches=N");
      count.remove_prefix(std::string_view("microbatches=").size());
      out.microbatches = line.number(count, "microbatches=N");
    } else {
      out.ops.push_back(parse_op(verb, line));
    }
    if (!line.done()) line.expected("the end of the line");
  }
  return out;
}

}  // namespace trireme::schedule
