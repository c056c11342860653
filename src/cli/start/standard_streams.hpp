// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace trireme::cli {

/// Gives standard input, output and error to /dev/null where they are closed: else the next file that is opened, such
/// as metrics.jsonl, would get their number and what is printed would go into it. Before anything else.
void open_standard_streams();

/// A reader of our output that goes away ends short commands quietly (as `trireme plan ... | head`); a long run ignores
/// it and continues: train::Output warns.
void ignore_closed_output();

/// A file that grows beyond its limit (`ulimit -f`) fails with an error, exit code 8, not with a signal: in every
/// command.
void fail_writes_with_errors();

/// Flushes standard output. Throws WriteError when what was printed could not be written.
void flush_standard_output();

}  // namespace trireme::cli
