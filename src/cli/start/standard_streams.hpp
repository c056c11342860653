// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace trireme::cli {

/// Opens standard input, output and error on /dev/null if they are closed: otherwise the next file that is opened, such
/// as metrics.jsonl, would get their descriptor and the output. Call first.
void open_standard_streams();

/// A closed output ends short commands quietly (as `trireme plan ... | head`); a long run ignores it and continues:
/// train::Output warns.
void ignore_closed_output();

/// A file that grows beyond its limit (`ulimit -f`) fails with an error, exit code 8, not with a signal: in every
/// command.
void fail_writes_with_errors();

/// Flushes standard output. Throws WriteError when the output could not be written.
void flush_standard_output();

}  // namespace trireme::cli
