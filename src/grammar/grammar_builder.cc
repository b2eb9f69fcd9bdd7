#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "grammar/grammar_graph.h"

namespace aerie {
namespace {

constexpr char32_t kLastCodePoint = 0x10FFFF;

std::string utf8(char32_t c) {
  std::string out;
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | (c >> 6));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | (c >> 12));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | (c >> 18));
    out += static_cast<char>(0x80 | ((c >> 12) & 0x3F));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
  return out;
}

// Splits a range where the number of bytes or a leading byte changes in the middle of the rest, so
// that each part is a product of byte ranges.
void split(char32_t first, char32_t last, std::vector<CodePointRange>& out) {
  for (const char32_t limit : {0x7Fu, 0x7FFu, 0xFFFFu}) {
    if (first <= limit && last > limit) {
      split(first, limit, out);
      split(limit + 1, last, out);
      return;
    }
  }
  if (last >= 0x80) {
    for (const int bits : {6, 12, 18}) {
      const char32_t rest = (char32_t{1} << bits) - 1;
      if ((first & ~rest) == (last & ~rest)) continue;
      if ((first & rest) != 0) {
        split(first, first | rest, out);
        split((first | rest) + 1, last, out);
        return;
      }
      if ((last & rest) != rest) {
        split(first, (last & ~rest) - 1, out);
        split(last & ~rest, last, out);
        return;
      }
    }
  }
  out.push_back({first, last});
}

}  // namespace

std::vector<CodePointRange> normalized(std::vector<CodePointRange> ranges) {
  std::vector<CodePointRange> clipped;
  for (const CodePointRange& range : ranges) {
    const char32_t last = std::min(range.last, kLastCodePoint);
    if (range.first < 0xD800) {
      clipped.push_back({range.first, std::min<char32_t>(last, 0xD7FF)});
    }
    if (last > 0xDFFF) clipped.push_back({std::max<char32_t>(range.first, 0xE000), last});
  }
  std::erase_if(clipped, [](const CodePointRange& range) { return range.first > range.last; });
  std::sort(clipped.begin(), clipped.end(),
            [](const CodePointRange& a, const CodePointRange& b) { return a.first < b.first; });
  std::vector<CodePointRange> out;
  for (const CodePointRange& range : clipped) {
    if (!out.empty() && range.first <= out.back().last + 1) {
      out.back().last = std::max(out.back().last, range.last);
    } else {
      out.push_back(range);
    }
  }
  return out;
}

std::vector<CodePointRange> complement(std::span<const CodePointRange> ranges) {
  std::vector<CodePointRange> out;
  char32_t next = 0;
  for (const CodePointRange& range : ranges) {
    if (range.first > next) out.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLastCodePoint) out.push_back({next, kLastCodePoint});
  return normalized(std::move(out));
}

GrammarBuilder::GrammarBuilder() : nodes_(2) {
  nodes_[1].kind = Kind::kNever;
}

void GrammarBuilder::fail(const std::string& message) {
  if (status_.ok()) status_ = Status(StatusCode::kResourceExhausted, message);
}

GrammarBuilder::Expr GrammarBuilder::add(Node node) {
  if (nodes_.size() >= kMaxExpressions || children_.size() >= 2 * kMaxExpressions) {
    fail(fmt::format("the grammar has more than {} expressions; simplify it", kMaxExpressions));
  }
  if (node.depth > kMaxNesting) {
    fail(fmt::format("the grammar nests more than {} levels deep", kMaxNesting));
  }
  if (!status_.ok()) return never();
  nodes_.push_back(node);
  return static_cast<Expr>(nodes_.size() - 1);
}

GrammarBuilder::Expr GrammarBuilder::add_children(Kind kind, const std::vector<Expr>& children) {
  Node node;
  node.kind = kind;
  node.a = static_cast<int>(children_.size());
  node.b = static_cast<int>(children.size());
  for (const Expr child : children) {
    node.depth = std::max<uint16_t>(node.depth, nodes_[child].depth + 1);
  }
  const Expr made = add(node);
  if (status_.ok()) children_.insert(children_.end(), children.begin(), children.end());
  return made;
}

GrammarBuilder::Expr GrammarBuilder::byte_range(uint8_t first, uint8_t last) {
  Node node;
  node.kind = Kind::kBytes;
  node.a = first;
  node.b = last;
  return add(node);
}

GrammarBuilder::Expr GrammarBuilder::literal(std::string_view text) {
  std::vector<Expr> items;
  for (const char c : text) {
    items.push_back(byte_range(static_cast<uint8_t>(c), static_cast<uint8_t>(c)));
  }
  return sequence(std::move(items));
}

GrammarBuilder::Expr GrammarBuilder::code_points(const std::vector<CodePointRange>& ranges) {
  std::vector<CodePointRange> parts;
  for (const CodePointRange& range : normalized(ranges)) split(range.first, range.last, parts);
  std::vector<Expr> branches;
  for (const CodePointRange& part : parts) {
    const std::string first = utf8(part.first);
    const std::string last = utf8(part.last);
    std::vector<Expr> items;
    for (size_t i = 0; i < first.size(); ++i) {
      items.push_back(byte_range(static_cast<uint8_t>(first[i]), static_cast<uint8_t>(last[i])));
    }
    branches.push_back(sequence(std::move(items)));
  }
  return any_of(std::move(branches));
}

GrammarBuilder::Expr GrammarBuilder::sequence(std::vector<Expr> items) {
  std::erase(items, empty());
  if (std::find(items.begin(), items.end(), never()) != items.end()) return never();
  if (items.empty()) return empty();
  return items.size() == 1 ? items[0] : add_children(Kind::kSequence, items);
}

GrammarBuilder::Expr GrammarBuilder::any_of(std::vector<Expr> branches) {
  std::erase(branches, never());
  if (branches.empty()) return never();
  return branches.size() == 1 ? branches[0] : add_children(Kind::kAnyOf, branches);
}

GrammarBuilder::Expr GrammarBuilder::repeat(Expr item, int least, int most) {
  if (least > kMaxRepeat || most > kMaxRepeat) {
    fail(fmt::format("a repetition of {} times; at most {} are handled", std::max(least, most),
                     kMaxRepeat));
    return never();
  }
  if (item == empty() || most == 0) return empty();
  if (most != kUnbounded && most < least) return never();
  if (item == never()) return least == 0 ? empty() : never();
  if (least == 1 && most == 1) return item;
  // A copy of a call is one node, whatever the rule's size.
  if ((most > 3 || least > 3) && nodes_[item].kind != Kind::kBytes) item = shared("", item);
  Node node;
  node.kind = Kind::kRepeat;
  node.depth = static_cast<uint16_t>(nodes_[item].depth + 1);
  node.a = least;
  node.b = most;
  node.item = item;
  return add(node);
}

GrammarBuilder::Expr GrammarBuilder::call(Rule rule) {
  Node node;
  node.kind = Kind::kCall;
  node.a = static_cast<int>(rule);
  return add(node);
}

GrammarBuilder::Rule GrammarBuilder::add_rule(std::string name) {
  rules_.push_back({std::move(name), never()});
  return static_cast<Rule>(rules_.size() - 1);
}

GrammarBuilder::Expr GrammarBuilder::shared(std::string name, Expr body) {
  if (nodes_[body].kind == Kind::kCall || body == never() || body == empty()) return body;
  const Rule rule = add_rule(std::move(name));
  define(rule, body);
  return call(rule);
}

}  // namespace aerie
