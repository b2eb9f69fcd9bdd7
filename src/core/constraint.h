// What a request may ask of its output beyond sampling: a constraint on tokens, a reason to stop.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"

namespace aerie {

// An automaton over token ids. The verifier advances a copy along each path it walks, so states are
// cheap to fork. Not thread-safe; one object belongs to one sequence.
class TokenConstraint {
 public:
  enum class Readiness : uint8_t {
    kReady,
    kLater,   // other threads are at it, as long as this object lives
    kFailed,  // for good: status() says why
  };

  virtual ~TokenConstraint() = default;

  // A copy in the same state.
  virtual std::unique_ptr<TokenConstraint> fork() const = 0;

  // What comes next may take long to tell. Whether mask() and, by what it allows, advance() are
  // look-ups now; a little work is done for that. Else neither may be called.
  virtual bool ready() { return true; }
  // The same, and where it is not ready has others make it so.
  virtual Readiness prepare() { return Readiness::kReady; }
  // Why nothing more can be told, here and in all forks; ok as long as it can.
  virtual Status status() const { return {}; }

  // Moves on by one token, which the mask allowed.
  virtual void advance(int32_t token) = 0;
  // Sets allowed[id] to whether `id` may come next. At least one id is allowed.
  virtual void mask(std::span<bool> allowed) const = 0;
  // What mask() says of one id, without the others; false too where it would take long to tell.
  virtual bool allows(int32_t token) const = 0;
  // Bytes that every continuation begins with, as far as they are told soon; empty: there is a
  // choice. Which tokens spell them is still the target's choice.
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
