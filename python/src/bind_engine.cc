#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "reply_handle.h"
#include "status_error.h"

namespace aerie::python {

namespace nb = nanobind;

namespace {

using Released = nb::call_guard<nb::gil_scoped_release>;

// An engine that can be closed while others hold on to it. Thread-safe; all calls but the
// destructor without the GIL.
class SharedEngine {
 public:
  explicit SharedEngine(const OpenOptions& options) : engine_(unwrap(Engine::open(options))) {}
  ~SharedEngine() {
    const nb::gil_scoped_release released;
    close();
  }
  SharedEngine(const SharedEngine&) = delete;
  SharedEngine& operator=(const SharedEngine&) = delete;

  // Throws if it is closed.
  std::shared_ptr<Engine> get() const {
    const std::lock_guard lock(mutex_);
    if (engine_ == nullptr) {
      throw StatusError(Status(StatusCode::kInvalidArgument, "the engine is closed"));
    }
    return engine_;
  }
  // Ends what is under way. The last call that is under way takes the engine with it.
  void close() {
    std::shared_ptr<Engine> last;
    const std::lock_guard lock(mutex_);
    last.swap(engine_);
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<Engine> engine_;
};

GrammarKind kind_of(const std::string& name) {
  if (name == "json_object") return GrammarKind::kJsonObject;
  if (name == "json") return GrammarKind::kJsonSchema;
  if (name == "grammar") return GrammarKind::kGrammar;
  if (name == "regex") return GrammarKind::kRegex;
  if (name == "choice") return GrammarKind::kChoice;
  throw StatusError(Status(StatusCode::kInvalidArgument, "no kind of grammar: '" + name + "'"));
}

CompiledGrammar compile(const SharedEngine& engine, const std::string& kind,
                        const std::string& text, const std::vector<std::string>& choices) {
  GrammarSpec spec;
  spec.kind = kind_of(kind);
  spec.text = text;
  spec.choices = choices;
  return {unwrap(engine.get()->compile_grammar(spec))};
}

std::vector<int32_t> tokenize(const SharedEngine& engine, std::string_view text, bool add_special,
                              bool parse_special) {
  return unwrap(engine.get()->tokenize(text, {add_special, parse_special}));
}

std::shared_ptr<ReplyHandle> submit(const SharedEngine& shared, const Request& request,
                                    std::shared_ptr<Notifier> notifier, uint64_t tag,
                                    bool at_end_alone) {
  const std::shared_ptr<Engine> engine = shared.get();
  const auto mailbox = std::make_shared<Mailbox>(std::move(notifier), tag, at_end_alone);
  const Engine::RequestId id = unwrap(engine->submit(request, mailbox));
  return std::make_shared<ReplyHandle>(engine, id, mailbox);
}

// (reasoning, content, [(name, arguments), ...])
nb::tuple read_chat_reply(const SharedEngine& engine, const std::string& text,
                          const std::string& prompt, const std::string& tools) {
  ChatReply reply;
  {
    const nb::gil_scoped_release released;
    reply = unwrap(engine.get()->read_chat_reply(text, prompt, tools));
  }
  nb::list calls;
  for (const ChatCall& call : reply.calls) {
    calls.append(nb::make_tuple(text_of(call.name), text_of(call.arguments)));
  }
  return nb::make_tuple(text_of(reply.reasoning), text_of(reply.content), calls);
}

void bind_info(nb::module_& module) {
  nb::class_<ModelInfo>(module, "ModelInfo", "What a model is called and how large it is.")
      .def_ro("name", &ModelInfo::name)
      .def_ro("context", &ModelInfo::context)
      .def_ro("vocabulary", &ModelInfo::vocabulary)
      .def_ro("bos", &ModelInfo::bos)
      .def_ro("eos", &ModelInfo::eos)
      .def_ro("has_chat_template", &ModelInfo::has_chat_template);
}

}  // namespace

void bind_engine(nb::module_& module) {
  bind_info(module);
  nb::class_<SharedEngine>(module, "Engine",
                           "A model that is open. No call holds the GIL while it works.")
      .def(nb::init<const OpenOptions&>(), nb::arg("options"), Released())
      .def("close", &SharedEngine::close, Released(),
           "Cancels what is under way. Other calls then raise InvalidArgumentError.")
      .def(
          "info", [](const SharedEngine& engine) { return engine.get()->info(); }, Released())
      .def(
          "suggested_sampling",
          [](const SharedEngine& engine) { return unwrap(engine.get()->suggested_sampling()); },
          Released(), "What the model's makers recommend to sample with.")
      .def("tokenize", &tokenize, nb::arg("text"), nb::arg("add_special") = true,
           nb::arg("parse_special") = false, Released())
      .def(
          "tokenize",
          [](const SharedEngine& engine, const nb::bytes& text, bool add_special,
             bool parse_special) {
            const std::string_view bytes(text.c_str(), text.size());
            const nb::gil_scoped_release released;
            return tokenize(engine, bytes, add_special, parse_special);
          },
          nb::arg("text"), nb::arg("add_special") = true, nb::arg("parse_special") = false)
      .def(
          "detokenize",
          [](const SharedEngine& engine, const std::vector<int32_t>& tokens) {
            std::string text;
            {
              const nb::gil_scoped_release released;
              text = engine.get()->detokenize(tokens);
            }
            return nb::bytes(text.data(), text.size());
          },
          nb::arg("tokens"), "The text's UTF-8; control tokens have none.")
      .def(
          "render_chat_template",
          [](const SharedEngine& engine, const std::string& variables) {
            return unwrap(engine.get()->render_chat_template(variables));
          },
          nb::arg("variables"), Released(),
          "What the model's template makes of messages and others, a JSON object.")
      .def("read_chat_reply", &read_chat_reply, nb::arg("text"), nb::arg("prompt"),
           nb::arg("tools") = "", "(reasoning, content, [(name, arguments), ...]) of a reply.")
      .def(
          "reply_marks",
          [](const SharedEngine& engine, bool with_calls) {
            return engine.get()->reply_marks(with_calls);
          },
          nb::arg("with_calls"), Released(), "Request.shown_tokens of what is then read so.")
      .def("compile_grammar", &compile, nb::arg("kind"), nb::arg("text") = "",
           nb::arg("choices") = std::vector<std::string>(), Released())
      .def("submit", &submit, nb::arg("request"), nb::arg("notifier") = nb::none(),
           nb::arg("tag") = 0, nb::arg("at_end_alone") = false, Released());
}

}  // namespace aerie::python
