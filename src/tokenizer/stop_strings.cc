#include "tokenizer/stop_strings.h"

namespace aerie {

StopStrings::StopStrings(const std::vector<std::string>& stops) {
  for (const std::string& stop : stops) add(stop);
  link();
}

// 0: there is none.
uint32_t StopStrings::child(uint32_t node, char c) const {
  uint32_t child = nodes_[node].first_child;
  while (child != 0 && nodes_[child].c != c) child = nodes_[child].sibling;
  return child;
}

uint32_t StopStrings::step(uint32_t node, char c) const {
  for (;;) {
    if (const uint32_t next = child(node, c); next != 0) return next;
    if (node == 0) return 0;
    node = nodes_[node].fail;
  }
}

void StopStrings::add(std::string_view stop) {
  uint32_t node = 0;
  for (const char c : stop) {
    uint32_t next = child(node, c);
    if (next == 0) {
      next = static_cast<uint32_t>(nodes_.size());
      nodes_.push_back(
          {.sibling = nodes_[node].first_child, .length = nodes_[node].length + 1, .c = c});
      nodes_[node].first_child = next;
    }
    node = next;
  }
  nodes_[node].complete = nodes_[node].length;
}

// Shorter prefixes first: a node's link leads to a shorter one.
void StopStrings::link() {
  std::vector<uint32_t> order = {0};
  order.reserve(nodes_.size());
  for (size_t i = 0; i < order.size(); ++i) {
    const uint32_t parent = order[i];
    for (uint32_t at = nodes_[parent].first_child; at != 0; at = nodes_[at].sibling) {
      Node& node = nodes_[at];
      node.fail = parent == 0 ? 0 : step(nodes_[parent].fail, node.c);
      if (node.complete == 0) node.complete = nodes_[node.fail].complete;
      order.push_back(at);
    }
  }
}

bool StopStrings::push(std::string_view text, std::string& out) {
  for (const char c : text) {
    held_ += c;
    state_ = step(state_, c);
    const size_t complete = nodes_[state_].complete;
    if (complete == 0) continue;
    matched_ = held_.substr(held_.size() - complete);
    out.append(held_, 0, held_.size() - complete);
    held_.clear();
    return true;
  }
  const size_t keep = nodes_[state_].length;
  out.append(held_, 0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return false;
}

void StopStrings::finish(std::string& out) {
  out += held_;
  held_.clear();
}

}  // namespace aerie
