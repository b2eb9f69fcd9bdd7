#include "tests/kv/random_calls.h"

#include <span>

namespace aerie {

ModelConfig RandomCalls::config() {
  ModelConfig config;
  config.layers = 3;
  config.hidden = 32;
  config.heads = 2;
  config.kv_heads = 1;
  config.head_dim = 16;
  config.vocab = 100;
  config.context = 1024;
  return config;
}

void RandomCalls::make(KvCache& cache, const Pass& pass) {
  const int number = draw(kSequences);
  Open& one = open_[static_cast<size_t>(number)];
  if (one.id < 0) return begin(cache, one);
  const int kind = draw(10);
  if (kind == 0) {
    std::vector<PrefixKey> keys(one.keys.begin(), one.keys.begin() + cache.committed(one.id));
    cache.keep(one.id, keys, draw(2) == 0, draw(2) == 0 ? "a" : "b");
    cache.close(one.id);
    one = {};
  } else if (kind == 1) {
    cache.truncate(one.id, draw(cache.committed(one.id) + 1));
  } else if (kind == 2 && draw(10) == 0) {
    cache.drop_kept();
  } else {
    rows(cache, one, pass);
  }
}

void RandomCalls::begin(KvCache& cache, Open& one) {
  const auto id = cache.open();
  if (!id.ok()) return;
  one.id = *id;
  // Few texts, so that beginnings are met again.
  const int text = draw(3);
  for (int i = 0; i < 1024; ++i) one.keys.push_back(static_cast<PrefixKey>(i * 3 + text + 1));
  cache.adopt(one.id, std::span(one.keys).first(300), draw(2) == 0 ? "a" : "b");
}

void RandomCalls::rows(KvCache& cache, Open& one, const Pass& pass) {
  const int count = 1 + draw(40);
  if (cache.committed(one.id) + count > 900) return;
  const bool settled = draw(2) == 0;
  if (!cache.reserve(one.id, count, settled ? count : 0).ok()) return;
  pass(one.id, count, static_cast<uint8_t>(draw(256)));
  if (settled || draw(2) == 0) {
    cache.commit_first(one.id, settled ? count : draw(count + 1));
    return;
  }
  std::vector<int32_t> path;
  for (int i = 0; i < count; ++i) {
    if (draw(2) == 0) path.push_back(i);
  }
  cache.commit(one.id, path);
}

void write_mark(const kernels::KvLayout& layout, std::byte* plane, int32_t slot, uint8_t mark) {
  std::byte* const keys = plane + layout.keys(slot / kernels::kPagePositions, 0);
  const auto at = layout.key_element(slot % kernels::kPagePositions, 0) * 2;
  keys[at] = std::byte{mark};
}

}  // namespace aerie
