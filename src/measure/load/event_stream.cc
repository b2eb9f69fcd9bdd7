#include "measure/load/event_stream.h"

#include <algorithm>
#include <utility>

namespace aerie::measure {

bool EventStream::add(std::string_view bytes, const Taker& take) {
  for (;;) {
    const size_t end = bytes.find('\n');
    if (line_.size() + data_.size() + std::min(end, bytes.size()) > most_bytes_) return false;
    line_ += bytes.substr(0, end);
    if (end == std::string_view::npos) return true;
    bytes.remove_prefix(end + 1);
    const std::string line = std::exchange(line_, {});
    if (!add_line(line, take)) return false;
  }
}

bool EventStream::add_line(std::string_view line, const Taker& take) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (line.empty()) {
    const bool whole = std::exchange(has_data_, false);
    const std::string data = std::exchange(data_, {});
    return !whole || take(data);
  }
  constexpr std::string_view kField = "data:";
  if (!line.starts_with(kField)) return true;
  line.remove_prefix(kField.size());
  if (line.starts_with(' ')) line.remove_prefix(1);
  if (has_data_) data_ += '\n';
  data_ += line;
  has_data_ = true;
  return true;
}

}  // namespace aerie::measure
