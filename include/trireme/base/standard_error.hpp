// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace trireme {

/// Writes `text` to standard error in one piece. Waits once, two seconds at most, for a reader that does not read (a
/// full pipe, a stopped terminal); then drops text until it reads again, and writes a line with the number of dropped
/// messages. Appends `text` to the file of `keep_messages`. terminal_prefix: written before it to standard error alone,
/// such as the sequence that clears a line. Any thread may call it; never throws.
void write_to_standard_error(std::string_view text, std::string_view terminal_prefix = {}) noexcept;

/// The same for the last message of a process, which other threads may not delay: it takes no lock, and waits two
/// seconds at most for standard error and two for the file.
void write_last_message(std::string_view text) noexcept;

/// Also appends messages to the file at `path`, those of this process so far first. only_dropped: only
/// those that standard error does not take; without one there is no file. A file that cannot be written is left alone.
void keep_messages(const std::string& path, bool only_dropped);

}  // namespace trireme
