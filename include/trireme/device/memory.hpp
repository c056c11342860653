// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "trireme/base/units.hpp"

/// Accounting of all memory: allocations are charged to an account, a memory space and a category.
namespace trireme::device {

/// Use of memory. Metrics, tables and messages name them by `to_text`.
enum class Category : std::uint8_t {
  parameters_sharded,
  parameters_unsharded,
  parameters_resharded,  ///< copies that groups keep between forward and backward
  gradients_sharded,
  gradients_unsharded,
  optimizer,
  activations,
  workspace,
  communication,
  data,
  other,
};
inline constexpr std::size_t category_count = 11;
/// All categories, in the order of the metrics.
[[nodiscard]] const std::array<Category, category_count>& all_categories();
/// "parameters.sharded", ...: the names of metrics.jsonl.
[[nodiscard]] std::string_view to_text(Category category);

/// Memory of the compute device, or of the host. If that device is the CPU, both are host memory with separate
/// counters; if it is a GPU (`use_gpu`), all host memory is Space::host.
enum class Space : std::uint8_t { device, host };
inline constexpr std::size_t space_count = 2;
[[nodiscard]] std::string_view to_text(Space space);

/// Account to which an allocation is charged.
struct Account {
  Category category = Category::other;
  Space space = Space::device;
  friend bool operator==(Account, Account) = default;
};

/// The account that the calling thread's allocations are charged to. A new thread starts with {other, device}.
[[nodiscard]] Account current_account();

/// Charges the calling thread's allocations to an account for the length of a scope; scopes nest. Memory allocated
/// inside is discharged from that account when it is freed, at any time and on any thread.
class [[nodiscard]] ChargeTo {
 public:
  explicit ChargeTo(Account account);
  explicit ChargeTo(Category category, Space space = Space::device) : ChargeTo(Account{category, space}) {}
  ~ChargeTo();
  ChargeTo(const ChargeTo&) = delete;
  ChargeTo& operator=(const ChargeTo&) = delete;

 private:
  Account outer_;
};

/// Charges memory that something else allocated (an MPI window, a mapped file) for as long as it lives.
class [[nodiscard]] Charge {
 public:
  Charge() = default;
  /// Charges memory of the host.
  Charge(Account account, Bytes bytes);
  /// Charges memory of a GPU that belongs to no tensor.
  static Charge of_gpu(Category category, Bytes bytes);
  ~Charge();
  Charge(Charge&& other) noexcept;
  Charge& operator=(Charge&& other) noexcept;

 private:
  Account account_;
  Bytes bytes_{0};
};

/// Bytes of each category, indexed by Category.
struct ByCategory {
  std::array<Bytes, category_count> bytes{};
  [[nodiscard]] Bytes operator[](Category category) const { return bytes[static_cast<std::size_t>(category)]; }
  [[nodiscard]] Bytes& operator[](Category category) { return bytes[static_cast<std::size_t>(category)]; }
  [[nodiscard]] Bytes sum() const;
};

/// Not in an op of a schedule.
inline constexpr int no_op = -1;

/// The ops in which peaks were reached.
struct PeakOps {
  std::array<int, category_count> category;
  int total = no_op;
  PeakOps() { category.fill(no_op); }
  [[nodiscard]] int operator[](Category of) const { return category[static_cast<std::size_t>(of)]; }
};

/// Use of one memory space.
struct SpaceUse {
  ByCategory current;
  ByCategory peak;     ///< of each category for itself: their sum may exceed peak_total
  ByCategory at_peak;  ///< the split when the total was last highest: their sum is peak_total
  Bytes total;         ///< sum of current
  Bytes peak_total;
  PeakOps peak_ops;  ///< no_op where nothing has grown since `reset_peaks`
};

/// Bytes charged now and their peak since the last `reset_peaks`; and the allocator's own counts.
struct MemoryUse {
  std::array<SpaceUse, space_count> spaces;
  Bytes allocated;               ///< bytes allocated and not freed, counted by the allocator to check the categories
  Bytes cached;                  ///< freed blocks kept for reuse
  Bytes reserved;                ///< taken from the system: allocated + rounding and headers + cached
  Bytes peak_reserved;           ///< since the last `reset_peaks`
  std::int64_t allocations = 0;  ///< since the process began
  std::int64_t reused = 0;       ///< of these, served by a cached block
  [[nodiscard]] const SpaceUse& operator[](Space space) const { return spaces[static_cast<std::size_t>(space)]; }
};

/// A consistent picture of the charges. Any thread may call it.
[[nodiscard]] MemoryUse memory_use();

/// Resets all peaks to the bytes in use.
void reset_peaks();

/// A size of the process, as the kernel counts it.
struct ProcessSize {
  Bytes current;
  Bytes peak;
};

/// Memory of the process; zeros if the kernel reports none.
struct ProcessMemory {
  ProcessSize resident;
  ProcessSize mapped;  ///< address space, which `ulimit -v` bounds
};
[[nodiscard]] ProcessMemory process_memory();

/// Whether the system could map that many bytes now.
[[nodiscard]] bool can_map(Bytes bytes);

}  // namespace trireme::device
