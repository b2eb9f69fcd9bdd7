// Which pages of a cache have a place in its layers with a window. Such a layer has fewer places
// than there are pages: a row looks no further back than the window, so that what a sequence read
// before it is of use only to others that begin alike. A page that sequences need has a place; what
// nobody needs any more keeps its place until another page takes it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/kv_layout.h"

namespace aerie {

// Numbers of pages are the cache's, and so is knowing who needs what. Not thread-safe; allocates in
// the constructor alone.
class WindowPages {
 public:
  static constexpr int32_t kNone = -1;

  // `places` for `pages` pages. `window` positions are seen, the row's own counted, and `behind`
  // before them are kept with them: by so many a sequence can be truncated, and so many before an
  // end that was kept others can begin.
  WindowPages(int pages, int places, int window, int behind);

  // The first page of what a row at position `length` sees of those before it, and of what is kept
  // with it.
  int first_seen(int length) const { return page_of(length - window_ + 1); }
  int first_kept(int length) const { return page_of(length - window_ + 1 - behind_); }
  // The most pages that a sequence of that length has to have, before it reserves.
  int most_kept(int64_t length) const;

  // The place of a page, or kNone.
  int32_t place(int32_t page) const { return places_[static_cast<size_t>(page)]; }
  bool has(int32_t page) const { return place(page) != kNone; }
  int window() const { return window_; }
  int places() const { return count_; }
  // Places that pages may still take.
  int available() const { return static_cast<int>(free_.size()) + unneeded_; }

  // One sequence more needs the page, which gets a place unless it has one. Requires that it has
  // one, or that one is available.
  void need(int32_t page);
  // One fewer. What nobody needs then goes last of what nobody needs, or last of all if it is worth
  // more.
  void release(int32_t page);
  int users(int32_t page) const { return users_[static_cast<size_t>(page)]; }
  // Others may begin where this page is needed: it is worth more, while it has a place.
  void value(int32_t page);
  bool is_valued(int32_t page) const { return valued_[static_cast<size_t>(page)]; }
  // `to` holds the same as `from`, and has no place: it takes over place, worth and need.
  void hand_over(int32_t from, int32_t to);
  // What it holds is of no use any more. Requires that nobody needs it.
  void drop(int32_t page);

 private:
  // Pages that have a place and that nobody needs, the next to go first: a ring for those that are
  // worth more, and one for the others.
  struct Link {
    int32_t before, after;
  };
  static int page_of(int position) {
    return position <= 0 ? 0 : position / kernels::kPagePositions;
  }
  int32_t ring_of(int32_t page) const;
  void link(int32_t page);
  void unlink(int32_t page);
  void take_place(int32_t page);

  int window_, behind_, count_;
  int unneeded_ = 0;
  std::vector<int32_t> places_;  // [page]
  std::vector<int32_t> users_;   // [page]: sequences that need it
  std::vector<bool> valued_;     // [page]
  std::vector<Link> links_;      // [page], and the two rings' own behind them
  std::vector<int32_t> free_;
};

}  // namespace aerie
