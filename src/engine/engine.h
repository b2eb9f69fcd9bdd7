// The engine (aerie/engine.h) with what programs of this tree need of its parts.
#pragma once

#include "aerie/engine.h"
#include "aerie/request.h"
#include "base/status.h"
#include "engine/engine_options.h"
#include "engine/opened_model.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"
