#include "tokenizer/stop_strings.h"

#include <algorithm>
#include <utility>

namespace aerie {

void StopStrings::Stop::advance(char c) {
  while (matched > 0 && text[matched] != c) matched = borders[matched - 1];
  if (text[matched] == c) ++matched;
}

StopStrings::StopStrings(std::vector<std::string> stops) {
  for (std::string& text : stops) {
    if (text.empty()) continue;
    Stop stop{std::move(text), {0}, 0};
    for (size_t i = 1; i < stop.text.size(); ++i) {
      stop.advance(stop.text[i]);
      stop.borders.push_back(stop.matched);
    }
    stop.matched = 0;
    stops_.push_back(std::move(stop));
  }
}

bool StopStrings::push(std::string_view text, std::string& out) {
  for (const char c : text) {
    held_ += c;
    size_t complete = 0;
    for (Stop& stop : stops_) {
      stop.advance(c);
      if (stop.matched == stop.text.size()) complete = std::max(complete, stop.matched);
    }
    if (complete == 0) continue;
    matched_ = held_.substr(held_.size() - complete);
    out.append(held_, 0, held_.size() - complete);
    held_.clear();
    return true;
  }
  size_t keep = 0;
  for (const Stop& stop : stops_) keep = std::max(keep, stop.matched);
  out.append(held_, 0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return false;
}

void StopStrings::finish(std::string& out) {
  out += held_;
  held_.clear();
}

}  // namespace aerie
