// Lookahead decoding (Fu et al. 2402.02057): the target guesses at n-grams ahead of the text by
// Jacobi iteration in rows of the verify pass, and drafts are what it guessed before.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "draft/drafter.h"

namespace aerie {

// W, N and G of the paper.
struct LookaheadOptions {
  int window = 5;       // columns of the window; 1 to 64
  int ngram = 5;        // tokens of an n-gram, the one that it follows counted; 2 to 16
  int guesses = 5;      // n-grams kept for each first token, and drafted; 1 to 64
  int num_tokens = 64;  // the most nodes of a tree; the window must fit
  std::vector<int32_t> end_tokens = {};  // never in the window: nothing sensible follows them
};

// Nodes of the largest tree that these settings ask for, window included.
int lookahead_nodes(const LookaheadOptions& options);

// The window has N - 1 rows of W columns; column i of row l stands at position n + i + l, n being
// the root's, and is the child of column i of the row above it, in row 0 of column i - 1. Row 0
// begins with the root. What the target thinks most likely after the last row ends W n-grams, one
// for each column, which go into a pool keyed by their first token; then each row becomes the next.
// At first the window is one row of random tokens of the text, and grows by one each round. Its
// nodes are kWindow and, in the last row, kProbe; they stay out where they do not fit.
//
// The draft is the pool's n-grams behind the root's token, the latest first, merged by prefix;
// estimates go by how often n-grams of each rank, and their further tokens, have been right so far.
//
// The pool keeps the latest G for each first token; all sequences of a tenant share it, and of
// first tokens with the same remainder by 8192 it keeps the latest. Memory: 32 KiB * (2 + G (N -
// 1)) for each tenant, of all of them together 64 MiB (draft/tenant_drafter.h), and 4 (N - 1) (W +
// N - 2) bytes for a sequence.
Expected<std::unique_ptr<Drafter>> make_lookahead_drafter(const LookaheadOptions& options);

}  // namespace aerie
