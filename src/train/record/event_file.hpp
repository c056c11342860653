// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "train/record/log_file.hpp"

namespace trireme::train {

/// A point of the curve that `tag` names.
struct Scalar {
  std::string tag;
  double value = 0;  ///< kept as float; NaN and infinity are kept, too
};

/// One event with the points of a step, as a record of a TensorBoard event file: an Event of TensorBoard's event.proto
/// (wall_time 1, step 2, summary 5 of values with tag 1 and simple_value 2) in a TFRecord (length, checksum of the
/// length, bytes, checksum of the bytes; https://www.tensorflow.org/tutorials/load_data/tfrecord). wall_time: seconds
/// since 1970.
[[nodiscard]] std::string event_record(double wall_time, std::int64_t step, std::span<const Scalar> scalars);

/// A TensorBoard event file of this process. TensorBoard reads all files of a directory, in the order of their names,
/// as one run.
class EventFile {
 public:
  /// Creates a file in `directory`, which is made if need be. Its name sorts after all existing ones, even if this
  /// node's clock is behind. Of the earlier files, events of the first `keep_steps` steps stay: readers drop later ones
  /// at the start of this file (SessionLog.START). Keeping none removes the earlier files. Throws WriteError.
  explicit EventFile(const std::string& directory, std::int64_t keep_steps = 0);
  /// Writes the points of a step; where it can be written, they have reached the file when the call returns. Never
  /// throws: see LogFile.
  void append(std::int64_t step, std::span<const Scalar> scalars);
  [[nodiscard]] const std::string& path() const { return file_.path(); }

 private:
  LogFile file_;
};

}  // namespace trireme::train
