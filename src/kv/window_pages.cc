#include "kv/window_pages.h"

#include <algorithm>
#include <cassert>

namespace aerie {

WindowPages::WindowPages(int pages, int places, int window, int behind)
    : window_(window), behind_(behind), count_(places) {
  const auto count = static_cast<size_t>(pages);
  places_.assign(count, kNone);
  users_.resize(count);
  valued_.resize(count);
  for (int32_t i = 0; i < pages + 2; ++i) links_.push_back({i, i});
  // Those at the front are taken first, so that memory is touched as it is needed.
  for (int32_t place = places - 1; place >= 0; --place) free_.push_back(place);
}

int WindowPages::most_kept(int64_t length) const {
  // What is kept may begin with the last position of a page.
  constexpr int kAll = kernels::kPagePositions;
  const int64_t positions = int64_t{window_} - 1 + behind_ + kAll - 1;
  return static_cast<int>((std::min(length, positions) + kAll - 1) / kAll);
}

int32_t WindowPages::ring_of(int32_t page) const {
  return static_cast<int32_t>(places_.size()) + (valued_[static_cast<size_t>(page)] ? 1 : 0);
}

void WindowPages::link(int32_t page) {
  Link& ring = links_[static_cast<size_t>(ring_of(page))];
  links_[static_cast<size_t>(page)] = {ring.before, ring_of(page)};
  links_[static_cast<size_t>(ring.before)].after = page;
  ring.before = page;
  ++unneeded_;
}

void WindowPages::unlink(int32_t page) {
  const Link own = links_[static_cast<size_t>(page)];
  links_[static_cast<size_t>(own.before)].after = own.after;
  links_[static_cast<size_t>(own.after)].before = own.before;
  --unneeded_;
}

void WindowPages::take_place(int32_t page) {
  if (free_.empty()) {
    const auto rings = static_cast<int32_t>(places_.size());
    int32_t gone = links_[static_cast<size_t>(rings)].after;
    if (gone == rings) gone = links_[static_cast<size_t>(rings) + 1].after;
    assert(gone < rings);
    drop(gone);
  }
  places_[static_cast<size_t>(page)] = free_.back();
  free_.pop_back();
}

void WindowPages::need(int32_t page) {
  const auto at = static_cast<size_t>(page);
  if (places_[at] == kNone) {
    take_place(page);
  } else if (users_[at] == 0) {
    unlink(page);
  }
  ++users_[at];
}

void WindowPages::release(int32_t page) {
  assert(has(page) && users_[static_cast<size_t>(page)] > 0);
  if (--users_[static_cast<size_t>(page)] == 0) link(page);
}

void WindowPages::value(int32_t page) {
  const auto at = static_cast<size_t>(page);
  if (!has(page)) return;
  // Those that nobody needs are as if they had just been used.
  if (users_[at] == 0) unlink(page);
  valued_[at] = true;
  if (users_[at] == 0) link(page);
}

void WindowPages::hand_over(int32_t from, int32_t to) {
  const auto source = static_cast<size_t>(from), target = static_cast<size_t>(to);
  assert(!has(to) && users_[target] == 0);
  if (!has(from)) return;
  if (users_[source] == 0) unlink(from);
  std::swap(places_[source], places_[target]);
  std::swap(users_[source], users_[target]);
  valued_[target] = valued_[source];
  valued_[source] = false;
  if (users_[target] == 0) link(to);
}

void WindowPages::drop(int32_t page) {
  const auto at = static_cast<size_t>(page);
  assert(users_[at] == 0);
  if (!has(page)) return;
  unlink(page);
  free_.push_back(places_[at]);
  places_[at] = kNone;
  valued_[at] = false;
}

}  // namespace aerie
