// SPDX-License-Identifier: Apache-2.0
#include "train/record/memory_snapshot.hpp"

#include "train/record/pickle.hpp"
#include "trireme/schedule/text.hpp"

namespace trireme::train {
namespace {

using device::Category;
using device::MemoryEvent;
using device::Space;

/// The page takes an event without a category for one of this, and ends in an error if no event has it.
constexpr std::string_view no_category = "unknown";

class Writer {
 public:
  Writer(const schedule::Schedule& schedule, const model::Model& model) : schedule_(schedule), model_(model) {}

  std::string operator()(const device::MemoryHistory& history) && {
    pickle_.dictionary([&] {
      pickle_.text("segments");
      pickle_.list([&] {
        for (const MemoryEvent& block : history.live) pickle_.element([&] { segment(block); });
      });
      pickle_.text("device_traces");
      pickle_.list([&] {
        for (const Space space : {Space::device, Space::host}) pickle_.element([&] { trace(history, space); });
      });
    });
    return std::move(pickle_).take();
  }

 private:
  static int device_of(const MemoryEvent& event) { return event.account.space == Space::device ? 0 : 1; }
  static std::string_view category_of(const MemoryEvent& event) {
    return event.account.category == Category::other ? no_category : to_text(event.account.category);
  }

  void trace(const device::MemoryHistory& history, Space space) {
    pickle_.list([&] {
      action("snapshot", {.size = {}, .account = {.category = Category::other, .space = space}});
      for (const MemoryEvent& event : history.events) {
        if (event.account.space != space) continue;
        if (event.allocated) {
          action("segment_alloc", event);
          action("alloc", event);
        } else {
          action("free_requested", event);
          action("free_completed", event);
          action("segment_free", event);
        }
      }
    });
  }

  void action(std::string_view name, const MemoryEvent& event) {
    pickle_.element([&] { describe(name, event); });
  }

  void describe(std::string_view name, const MemoryEvent& event) {
    pickle_.dictionary([&] {
      pickle_.entry("action", name);
      pickle_.entry("addr", static_cast<std::int64_t>(event.address));
      pickle_.entry("size", event.size.value);
      pickle_.entry("stream", 0);
      pickle_.entry("time_us", event.microseconds);
      pickle_.entry("category", category_of(event));
      frames(event);
    });
  }

  void segment(const MemoryEvent& block) {
    pickle_.dictionary([&] {
      pickle_.entry("device", device_of(block));
      pickle_.entry("address", static_cast<std::int64_t>(block.address));
      pickle_.entry("total_size", block.size.value);
      pickle_.entry("allocated_size", block.size.value);
      pickle_.entry("active_size", block.size.value);
      pickle_.entry("requested_size", block.size.value);
      pickle_.entry("stream", 0);
      pickle_.entry("segment_type", "large");
      pickle_.text("is_expandable");
      pickle_.flag(false);
      frames(block);
      pickle_.text("blocks");
      pickle_.list([&] { pickle_.element([&] { block_of(block); }); });
    });
  }

  void block_of(const MemoryEvent& block) {
    pickle_.dictionary([&] {
      pickle_.entry("address", static_cast<std::int64_t>(block.address));
      pickle_.entry("size", block.size.value);
      pickle_.entry("requested_size", block.size.value);
      pickle_.entry("state", "active_allocated");
      frames(block);
    });
  }

  /// One frame, shown as file:line:name: the op, the step from 1, the category.
  void frames(const MemoryEvent& event) {
    const auto [op, step] = event.operation;
    pickle_.text("frames");
    pickle_.list([&] {
      pickle_.element([&] {
        pickle_.dictionary([&] {
          pickle_.entry("filename", op < 0 ? "outside the step"
                                           : schedule::print(schedule_.ops[static_cast<std::size_t>(op)], model_));
          pickle_.entry("line", step + 1);
          pickle_.entry("name", to_text(event.account.category));
        });
      });
    });
  }

  const schedule::Schedule& schedule_;
  const model::Model& model_;
  Pickle pickle_;
};

}  // namespace

std::string memory_snapshot(const device::MemoryHistory& history, const schedule::Schedule& schedule,
                            const model::Model& model) {
  return Writer(schedule, model)(history);
}

}  // namespace trireme::train
