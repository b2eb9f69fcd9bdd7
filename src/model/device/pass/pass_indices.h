// Numbers that a pass is told besides what it has of each row: pages, slots, records.
#pragma once

#include <cstdint>
#include <span>

#include "base/errors.h"
#include "base/status.h"

namespace aerie {

class PassIndices {
 public:
  void set_room(int64_t room) { room_ = room; }
  // Begins anew, there.
  void start(int32_t* at) {
    at_ = at;
    used_ = 0;
  }
  int64_t used() const { return used_; }

  // Room for so many more: kInternal if there is none.
  Status check_room(int64_t more) const {
    if (used_ + more <= room_) return {};
    return internal_error("a pass has more pages and slots than a device has room for ({})", room_);
  }
  // Requires room.
  void add(int32_t index) { at_[used_++] = index; }
  // The index of the first.
  Expected<int32_t> add(std::span<const int32_t> list) {
    AERIE_RETURN_IF_ERROR(check_room(static_cast<int64_t>(list.size())));
    const auto first = static_cast<int32_t>(used_);
    for (const int32_t index : list) add(index);
    return first;
  }

 private:
  int32_t* at_ = nullptr;
  int64_t used_ = 0, room_ = 0;
};

}  // namespace aerie
