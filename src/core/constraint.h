// What a request may ask of its output beyond sampling: a constraint on tokens, a reason to stop.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace aerie {

// An automaton over token ids. The verifier advances a copy along each path it walks, so states are
// cheap to fork. Not thread-safe; one object belongs to one sequence.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;

  // A copy in the same state.
  virtual std::unique_ptr<TokenConstraint> fork() const = 0;
  // Moves on by one token, which the mask allowed.
  virtual void advance(int32_t token) = 0;
  // Sets allowed[id] to whether `id` may come next. At least one id is allowed.
  virtual void mask(std::span<bool> allowed) const = 0;
  // What mask() says of one id, without the others.
  virtual bool allows(int32_t token) const = 0;
  // The bytes that every continuation begins with; empty: there is a choice. Which tokens spell
  // them is still the target's choice.
  virtual std::string forced() const = 0;
};

// Decides, token by token, whether a sequence ends. Called in order with committed candidates only.
class StopCondition {
 public:
  virtual ~StopCondition() = default;

  // Whether generation ends with this token (which is kept).
  virtual bool stops_after(int32_t token) = 0;
};

}  // namespace aerie
