#include "grammar/compiled_grammar.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/errors.h"

namespace aerie {

using grammar::Effort;
using grammar::Program;
using grammar::State;
using grammar::StateTable;

namespace {

size_t bytes_of(const Program& program) {
  return program.nodes.capacity() * sizeof(program.nodes[0]) +
         program.edges.capacity() * sizeof(program.edges[0]);
}

size_t bytes_of(const GrammarSpec& spec) {
  size_t bytes = spec.text.capacity() + spec.choices.capacity() * sizeof(spec.choices[0]);
  for (const std::string& choice : spec.choices) bytes += choice.capacity();
  for (const GrammarSpec& part : spec.parts) bytes += sizeof(part) + bytes_of(part);
  return bytes;
}

}  // namespace

Grammar::Grammar(GrammarSpec spec, Program program, std::shared_ptr<const TokenTrie> trie,
                 std::shared_ptr<GrammarPool> pool)
    : spec_(std::move(spec)),
      program_(std::make_shared<const Program>(std::move(program))),
      trie_(std::move(trie)),
      pool_(std::move(pool)),
      own_bytes_(bytes_of(spec_) + bytes_of(*program_)),
      max_bytes_(pool_ == nullptr ? kMaxBytes : std::min(kMaxBytes, pool_->memory()->limit() / 2)) {
  if (pool_ == nullptr) return;
  pool_->memory()->enter();
  pool_->memory()->add(own_bytes_);
}

Grammar::~Grammar() {
  if (pool_ != nullptr) pool_->memory()->leave(own_bytes_);
}

std::shared_ptr<StateTable> Grammar::make_table() const {
  if (pool_ == nullptr) {
    return std::make_shared<StateTable>(program_, trie_, max_bytes_, nullptr);
  }
  auto table = std::make_unique<StateTable>(program_, trie_, max_bytes_, pool_->memory());
  // The last to hold it may be the thread that decodes.
  return {table.release(), [pool = pool_](StateTable* last) {
            const size_t bytes = last->bytes();
            // Before it is gone: else who comes next is refused until a thread has time. They come
            // to it before they make anything new.
            last->leave_shared();
            pool->discard(std::shared_ptr<const StateTable>(last), bytes);
          }};
}

Grammar::Place Grammar::start() const {
  const std::lock_guard lock(mutex_);
  return start_;
}

Status Grammar::open(Effort& effort) {
  AERIE_RETURN_IF_ERROR(begin_afresh(effort));
  Place place = start();
  return make_mask(place, effort);
}

Status Grammar::begin_afresh(Effort& effort) const {
  Place fresh;
  fresh.table = make_table();
  fresh.state = fresh.table->start(effort);
  if (fresh.state == nullptr) return problem(effort);
  const std::lock_guard lock(mutex_);
  std::swap(start_, fresh);
  return {};
}

// From a full table to the newest, or to a new one if that is it.
Status Grammar::move_on(Place& place, bool& renewed, Effort& effort) const {
  while (effort.end() == Effort::End::kFull && !renewed) {
    effort.begin_afresh();
    Place newest = start();
    if (newest.table == place.table || newest.table->full()) {
      renewed = true;
      AERIE_RETURN_IF_ERROR(begin_afresh(effort));
      newest = start();
    }
    newest.state = newest.table->import(*place.state, effort);
    if (newest.state == nullptr) continue;
    place = std::move(newest);
    return {};
  }
  return problem(effort);
}

Status Grammar::make_mask(Place& place, Effort& effort) const {
  bool renewed = false;
  while (place.table->mask(*place.state, effort) == nullptr) {
    AERIE_RETURN_IF_ERROR(move_on(place, renewed, effort));
  }
  return {};
}

Status Grammar::walk(Place& place, std::string_view bytes, Effort& effort) const {
  bool renewed = false;
  for (const char byte : bytes) {
    const State* next = nullptr;
    while ((next = place.table->step(*place.state, static_cast<uint8_t>(byte), effort)) ==
           nullptr) {
      AERIE_RETURN_IF_ERROR(move_on(place, renewed, effort));
    }
    place.state = next;
  }
  return {};
}

size_t Grammar::bytes() const {
  const std::lock_guard lock(mutex_);
  return own_bytes_ + (start_.table == nullptr ? 0 : start_.table->bytes());
}

Status Grammar::problem(const Effort& effort) const {
  switch (effort.end()) {
    case Effort::End::kSteps:
      return resource_exhausted("the constraint needs more than {} million steps for one token",
                                kMaxSteps / 1'000'000);
    case Effort::End::kFull:
      if (pool_ != nullptr && pool_->memory()->used() > pool_->memory()->limit() / 2) {
        return resource_exhausted(
            "the constraint needs more than its share of the {} MiB that all have together",
            pool_->memory()->limit() >> 20);
      }
      return resource_exhausted("the constraint needs more than {} MiB for its states",
                                max_bytes_ >> 20);
    default:
      return {StatusCode::kCancelled, "the constraint is not wanted any more"};
  }
}

}  // namespace aerie
