#include "kv/prefix_tree.h"

#include <algorithm>
#include <utility>

#include "kernels/kv_layout.h"

namespace aerie {

struct PrefixTree::Node {
  Node* parent = nullptr;       // null: a root, which has no page
  std::vector<PrefixKey> keys;  // those of its page; fewer than a page's only without children
  int32_t page = -1;
  std::vector<std::unique_ptr<Node>> children;
  std::list<Node*>::iterator use;
};

namespace {

constexpr size_t kKeysPerPage = kernels::kPagePositions;

size_t common(std::span<const PrefixKey> a, std::span<const PrefixKey> b) {
  const size_t most = std::min(a.size(), b.size());
  return static_cast<size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<ptrdiff_t>(most), b.begin()).first -
      a.begin());
}

}  // namespace

PrefixTree::PrefixTree() = default;
PrefixTree::~PrefixTree() {
  // Not by recursion: a tree may be as deep as a context has pages.
  std::vector<std::unique_ptr<Node>> left;
  for (auto& [tenant, root] : roots_) left.push_back(std::move(root));
  while (!left.empty()) {
    const std::unique_ptr<Node> node = std::move(left.back());
    left.pop_back();
    for (auto& child : node->children) left.push_back(std::move(child));
  }
}
PrefixTree::PrefixTree(PrefixTree&&) noexcept = default;
PrefixTree& PrefixTree::operator=(PrefixTree&&) noexcept = default;

PrefixTree::Step PrefixTree::best_child(const Node& node, std::span<const PrefixKey> keys) {
  Step best{nullptr, 0};
  for (const auto& child : node.children) {
    const auto same = static_cast<int>(common(child->keys, keys));
    if (same > best.keys) best = {child.get(), same};
  }
  return best;
}

void PrefixTree::touch(Node& node) {
  used_.splice(used_.end(), used_, node.use);
}

// From the end up, so that nothing is older than what hangs on it.
void PrefixTree::touch_path(Node* node) {
  for (; node->parent != nullptr; node = node->parent) touch(*node);
}

// Down the longest beginning that is there: visit(node, depth, where its page's keys begin, the
// best of its children). Returns the length.
template <typename Visit>
int PrefixTree::walk(std::string_view tenant, std::span<const PrefixKey> keys,
                     const Visit& visit) const {
  const auto root = roots_.find(tenant);
  if (root == roots_.end()) return 0;
  const Node* node = root->second.get();
  size_t length = 0;
  while (length < keys.size()) {
    const Step step = best_child(*node, keys.subspan(length));
    visit(*node, length, step.node);
    if (step.node == nullptr) break;
    node = step.node;
    length += static_cast<size_t>(step.keys);
    if (static_cast<size_t>(step.keys) < kKeysPerPage) break;
  }
  return static_cast<int>(length);
}

int PrefixTree::find(std::string_view tenant, std::span<const PrefixKey> keys,
                     std::vector<int32_t>& pages) {
  pages.clear();
  Node* last = nullptr;
  const int length = walk(tenant, keys, [&](const Node&, size_t, Node* best) {
    if (best == nullptr) return;
    pages.push_back(best->page);
    last = best;
  });
  if (last != nullptr) touch_path(last);
  return length;
}

int PrefixTree::length(std::string_view tenant, std::span<const PrefixKey> keys) const {
  return walk(tenant, keys, [](const Node&, size_t, const Node*) {});
}

void PrefixTree::matches(std::string_view tenant, std::span<const PrefixKey> keys,
                         std::vector<Match>& out) const {
  out.clear();
  walk(tenant, keys, [&](const Node& node, size_t from, const Node*) {
    for (const auto& child : node.children) {
      const auto same = static_cast<int>(common(child->keys, keys.subspan(from)));
      if (same > 0) out.push_back({static_cast<int>(from / kKeysPerPage), child->page, same});
    }
  });
}

void PrefixTree::add(std::string_view tenant, std::span<const PrefixKey> keys,
                     std::span<const int32_t> pages, std::vector<int32_t>& held) {
  held.clear();
  if (keys.empty()) return;
  std::unique_ptr<Node>& root = roots_[std::string(tenant)];
  if (root == nullptr) root = std::make_unique<Node>();
  Node* node = root.get();
  for (size_t first = 0, index = 0; first < keys.size(); first += kKeysPerPage, ++index) {
    const auto own = keys.subspan(first, std::min(kKeysPerPage, keys.size() - first));
    const Step step = best_child(*node, own);
    if (static_cast<size_t>(step.keys) == own.size()) {
      node = step.node;
      held.push_back(node->page);
      continue;
    }
    auto added = std::make_unique<Node>();
    added->parent = node;
    added->keys.assign(own.begin(), own.end());
    added->page = pages[index];
    added->use = used_.insert(used_.end(), added.get());
    held.push_back(added->page);
    node->children.push_back(std::move(added));
    node = node->children.back().get();
  }
  touch_path(node);
}

int32_t PrefixTree::evict(std::span<const int32_t> references) {
  const auto found = std::ranges::find_if(used_, [&](const Node* node) {
    return node->children.empty() && references[static_cast<size_t>(node->page)] == 1;
  });
  if (found == used_.end()) return -1;
  Node* const node = *found;
  const int32_t page = node->page;
  used_.erase(found);
  Node* const parent = node->parent;
  std::erase_if(parent->children, [&](const auto& child) { return child.get() == node; });
  if (parent->parent == nullptr && parent->children.empty()) {
    std::erase_if(roots_, [&](const auto& root) { return root.second.get() == parent; });
  }
  return page;
}

std::vector<int32_t> PrefixTree::pages() const {
  std::vector<int32_t> out;
  for (const Node* node : used_) out.push_back(node->page);
  return out;
}

}  // namespace aerie
