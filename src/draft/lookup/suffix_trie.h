// How often every string of up to so many tokens occurs in some texts, and what follows it: a
// path-compressed trie of their suffixes, kept up to date token by token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace aerie {

// One text is under way; those before it are complete, and the oldest of them can be dropped. A
// string's occurrences lie within a text. A token costs a step for each of max_depth lengths when
// it comes, as many more at most for the branch that the suffix from it makes some day, and
// max_depth when it is dropped, however long the texts are. Memory: at most 140 bytes for each of
// `max_tokens`, most of which is touched only when it is used. Nothing is allocated after
// construction but by end_text() and reserve(). Not thread-safe.
class SuffixTrie {
 public:
  // A string that occurs. It ends on the edge into a node; the empty string at the root.
  struct Point {
    int32_t node = 0;
    int32_t depth = 0;  // its length
  };
  struct Continuation {
    int32_t token;
    double share;  // of the string's occurrences that are followed by anything
    Point point;   // the string with this token
    uint32_t latest;
  };

  // Requires max_depth >= 1 and max_tokens >= 1. Throws when memory runs out.
  SuffixTrie(int max_depth, int max_tokens);

  // Makes max_tokens() at least so many; takes time for all that is held. Throws when memory runs
  // out, and then nothing has changed.
  void reserve(int max_tokens);
  // The next token of the text under way. Requires size() < max_tokens().
  void append(int32_t token);
  // Completes the text under way: the next token begins another.
  void end_text();
  // Forgets the oldest complete text. Requires texts() > 0 and no token of a text under way.
  void drop_oldest();

  int size() const { return static_cast<int>(head_ - tail_); }        // tokens held
  int texts() const { return static_cast<int>(ends_.size()); }        // complete ones held
  int text_size() const { return static_cast<int>(head_ - start_); }  // of the text under way
  int32_t text_token(int i) const { return token_at(start_ + static_cast<uint32_t>(i)); }
  int max_depth() const { return max_depth_; }
  int max_tokens() const { return max_tokens_; }
  // Nodes in use, the root too: never more than 2 * size() + 1.
  int nodes() const { return static_cast<int>(nodes_.size()) - free_count_; }

  // The last `length` tokens of the text under way, themselves an occurrence. Requires length <
  // max_depth and length <= text_size(). Points are good until the next change.
  Point suffix(int length) const;
  // Appends a token to the string; false, with the point untouched, if the result does not occur.
  bool step(Point& point, int32_t token) const;
  // What follows the string in at least `least` (above 0) of the cases where anything does: the
  // most frequent first, of equals the one that occurred last. At most 1 / least of them, found in
  // as many steps. Nothing for strings of max_depth.
  void continuations(Point point, double least, std::vector<Continuation>& out) const;

 private:
  // Children of a node form a list by falling count; those with equal counts are a group.
  struct Node {
    int32_t parent;
    int32_t first;    // token of the edge into this node
    uint32_t from;    // where a string down to this node begins: its last occurrence, all of it
    uint32_t latest;  // where the last one begins of which one token of the edge is known
    int32_t depth;    // length of the string down to this node
    int32_t onward;   // sum of the children's counts
    int32_t child;    // the most frequent one; -1: none
    int32_t prev;     // sibling; of the first: the last one
    int32_t next;     // sibling; -1: none
    int32_t group;
  };
  struct Group {
    int32_t count;  // occurrences that enter the edge of each member
    int32_t first, last;
  };

  int32_t token_at(uint32_t position) const { return text_[position & text_mask_]; }
  Node& at(int32_t node) { return nodes_[static_cast<size_t>(node)]; }
  const Node& at(int32_t node) const { return nodes_[static_cast<size_t>(node)]; }
  Group& group_of(int32_t node) { return groups_[static_cast<size_t>(at(node).group)]; }
  const Group& group_of(int32_t node) const { return groups_[static_cast<size_t>(at(node).group)]; }
  Point& open_at(uint32_t start) { return open_[start & open_mask_]; }
  uint32_t first_open() const;

  void advance(Point& point, uint32_t start, int32_t token);
  void split(Point& point, uint32_t start);
  void remove(uint32_t start, int length);
  void splice_out(int32_t node);

  int32_t new_node();
  void free_node(int32_t node);
  int32_t new_group(int32_t count, int32_t member);
  void free_group(int32_t group);

  // The hash table of children by parent and first token.
  size_t bucket(int32_t parent, int32_t token) const;
  size_t slot(int32_t parent, int32_t token) const;  // holds the child, or 0
  int32_t find(int32_t parent, int32_t token) const { return slots_[slot(parent, token)]; }
  void erase_slot(size_t slot);

  // Lists of siblings.
  void add_last(int32_t node);  // with a count of 1
  void unlink(int32_t node);
  void insert_before(int32_t node, int32_t before);
  void insert_after(int32_t node, int32_t after);
  void replace(int32_t node, int32_t by);
  void leave_group(int32_t node);
  void raise(int32_t node);
  void lower(int32_t node);
  void erase(int32_t node);

  int max_depth_, max_tokens_ = 0;
  uint32_t tail_ = 0, start_ = 0, head_ = 0;  // positions count on and on, modulo 2^32
  uint32_t text_mask_ = 0, open_mask_;
  std::vector<int32_t> slots_;
  std::vector<int32_t> text_;  // a ring
  std::vector<Point> open_;    // a ring: how far the suffix from each position has come
  std::deque<uint32_t> ends_;  // of complete texts
  std::vector<Node> nodes_;
  std::vector<Group> groups_;
  int32_t free_node_ = -1, free_group_ = -1;
  int free_count_ = 0;
};

}  // namespace aerie
