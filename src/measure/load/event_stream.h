// Server-sent events, of which the data alone counts.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace aerie::measure {

class EventStream {
 public:
  // Called with the data of each event; false ends the stream.
  using Taker = std::function<bool(std::string_view data)>;

  explicit EventStream(size_t most_bytes = size_t{16} << 20) : most_bytes_(most_bytes) {}

  // Takes bytes as they arrive, wherever they are cut. False: the stream is over, by `take` or
  // because an event is longer than most_bytes.
  bool add(std::string_view bytes, const Taker& take);

 private:
  bool add_line(std::string_view line, const Taker& take);

  size_t most_bytes_;
  std::string line_, data_;
  bool has_data_ = false;
};

}  // namespace aerie::measure
