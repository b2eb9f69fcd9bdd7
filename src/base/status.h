// Errors as values, and the two macros that hand them on.
#pragma once

#include <utility>

#include "aerie/status.h"

// NOLINTBEGIN(bugprone-macro-parentheses): a declaration stays one only without them.

// Returns the status of `expr` from the enclosing function unless it is ok.
#define AERIE_RETURN_IF_ERROR(expr)                                                        \
  do {                                                                                     \
    if (::aerie::Status aerie_status_ = (expr); !aerie_status_.ok()) return aerie_status_; \
  } while (false)

// AERIE_ASSIGN_OR_RETURN(auto x, f()): x = *f(), or returns f()'s status.
#define AERIE_ASSIGN_OR_RETURN(decl, expr) \
  AERIE_ASSIGN_OR_RETURN_IMPL_(AERIE_CONCAT_(aerie_expected_, __LINE__), decl, expr)
#define AERIE_ASSIGN_OR_RETURN_IMPL_(tmp, decl, expr) \
  auto tmp = (expr);                                  \
  if (!tmp.ok()) return tmp.status();                 \
  decl = std::move(tmp).value()
#define AERIE_CONCAT_(a, b) AERIE_CONCAT_IMPL_(a, b)
#define AERIE_CONCAT_IMPL_(a, b) a##b

// NOLINTEND(bugprone-macro-parentheses)
