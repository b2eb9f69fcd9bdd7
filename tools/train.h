// `aerie train` and `aerie speedup`: a program of its own, so that `aerie` need not carry what
// training needs.
#pragma once

#include "base/status.h"
#include "report/command_words.h"

namespace aerie {

// Becomes the program aerie-train beside this one, with these arguments (argv[0], and a null behind
// the last), and returns only if that cannot be: kNotFound, saying how to get it, if it is not
// there.
Status run_train(char** argv);

// The commands and flags below `aerie train` and `aerie speedup`, as aerie-train tells them.
// `words` stays as it is where aerie-train is not there.
void add_train_words(CommandWords& words);

}  // namespace aerie
