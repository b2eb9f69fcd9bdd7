#include "verify/residual.h"

#include <algorithm>

namespace aerie {
namespace {

// Calls fn(i, scale * p(id) - q(id)) for the i-th token of p. All ids ascend.
template <typename Fn>
void for_each_difference(const Distribution& p, double scale, const Proposed& q, const Fn& fn) {
  const Distribution* d = q.distribution;
  size_t j = 0;
  auto excluded = q.excluded.begin();
  for (size_t i = 0; i < p.size(); ++i) {
    const int32_t id = p.ids[i];
    double proposed = 0;
    if (d == nullptr) {
      proposed = id == q.token ? 1.0 : 0.0;
    } else {
      while (j < d->size() && d->ids[j] < id) ++j;
      while (excluded != q.excluded.end() && *excluded < id) ++excluded;
      const bool out = excluded != q.excluded.end() && *excluded == id;
      if (!out && j < d->size() && d->ids[j] == id) proposed = q.scale * d->probs[j];
    }
    fn(i, scale * p.probs[i] - proposed);
  }
}

}  // namespace

double residual_mass(const Distribution& p, double scale, const Proposed& q) {
  double mass = 0;
  for_each_difference(p, scale, q,
                      [&](size_t, double difference) { mass += std::max(difference, 0.0); });
  return mass;
}

double residual_distribution(const Distribution& p, double scale, const Proposed& q,
                             Distribution& out) {
  if (&out != &p) {
    out.ids.reserve(p.ids.capacity());
    out.probs.reserve(p.probs.capacity());
    out.ids.assign(p.ids.begin(), p.ids.end());
    out.probs.assign(p.probs.begin(), p.probs.end());
  }
  double mass = 0;
  size_t kept = 0;
  // What is written lies never ahead of what is read.
  for_each_difference(p, scale, q, [&](size_t i, double difference) {
    if (!(difference > 0)) return;
    out.ids[kept] = p.ids[i];
    out.probs[kept] = difference;
    ++kept;
    mass += difference;
  });
  if (kept == 0) return 0.0;
  out.ids.resize(kept);
  out.probs.resize(kept);
  for (double& probability : out.probs) probability /= mass;
  return mass;
}

}  // namespace aerie
