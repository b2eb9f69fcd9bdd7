#include "tools/run/line_reader.h"

#include <histedit.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "base/interrupt.h"
#include "base/standard_streams.h"

namespace aerie {
namespace {

constexpr int kHistory = 1000;  // lines

class PlainReader final : public LineReader {
 public:
  Input read(const std::string& prompt, std::string& line) override {
    print_message(prompt);
    line.clear();
    for (;;) {
      errno = 0;
      const int c = std::fgetc(stdin);
      if (c == '\n') return Input::kLine;
      if (c != EOF) {
        line += static_cast<char>(c);
        continue;
      }
      if (errno == EINTR) {
        std::clearerr(stdin);
        return Input::kInterrupted;
      }
      return line.empty() ? Input::kEnd : Input::kLine;
    }
  }
};

class EditedReader final : public LineReader {
 public:
  EditedReader(EditLine* editor, History* history, std::string file,
               std::vector<std::string> words);
  ~EditedReader() override;

  Input read(const std::string& prompt, std::string& line) override;

 private:
  static EditedReader& of(EditLine* editor) {
    void* self = nullptr;
    el_get(editor, EL_CLIENTDATA, &self);
    return *static_cast<EditedReader*>(self);
  }
  static char* prompt_of(EditLine* editor) { return of(editor).prompt_.data(); }
  static unsigned char on_interrupt(EditLine* editor, int key);
  static unsigned char on_suspend(EditLine* editor, int key);
  static unsigned char on_paste(EditLine* editor, int key);
  static unsigned char on_tab(EditLine* editor, int key);
  void bind();

  EditLine* editor_;
  History* history_;
  std::string file_;
  std::vector<std::string> words_;
  std::string prompt_;
  bool interrupted_ = false;
};

EditedReader::EditedReader(EditLine* editor, History* history, std::string file,
                           std::vector<std::string> words)
    : editor_(editor), history_(history), file_(std::move(file)), words_(std::move(words)) {
  HistEvent event = {};
  ::history(history_, &event, H_SETSIZE, kHistory);
  ::history(history_, &event, H_SETUNIQUE, 1);
  if (!file_.empty()) ::history(history_, &event, H_LOAD, file_.c_str());
  el_set(editor_, EL_CLIENTDATA, this);
  el_set(editor_, EL_PROMPT, prompt_of);
  el_set(editor_, EL_HIST, ::history, history_);
  el_set(editor_, EL_EDITOR, "emacs");
  bind();
  // What the person has set for all programs that edit like this.
  el_source(editor_, nullptr);
  // The width of the window is followed.
  el_set(editor_, EL_SIGNAL, 1);
  // Ctrl-C and Ctrl-Z arrive as keys: a signal would be taken for a fault of the terminal.
  el_set(editor_, EL_SETTY, "-d", "-isig", nullptr);
}

void EditedReader::bind() {
  el_set(editor_, EL_ADDFN, "aerie-interrupt", "Drop the line", on_interrupt);
  el_set(editor_, EL_ADDFN, "aerie-suspend", "Stop the program for now", on_suspend);
  el_set(editor_, EL_ADDFN, "aerie-paste", "Take in what is pasted", on_paste);
  el_set(editor_, EL_ADDFN, "aerie-complete", "Complete a command", on_tab);
  constexpr const char* kKeys[][2] = {
      {"^C", "aerie-interrupt"},    {"^Z", "aerie-suspend"},           {"\\e[200~", "aerie-paste"},
      {"\t", "aerie-complete"},     {"^R", "em-inc-search-prev"},      {"\\e[1~", "ed-move-to-beg"},
      {"\\e[4~", "ed-move-to-end"}, {"\\e[3~", "ed-delete-next-char"}, {"\\e[1;5C", "em-next-word"},
      {"\\e[1;5D", "ed-prev-word"}};
  for (const auto& [key, function] : kKeys) el_set(editor_, EL_BIND, key, function, nullptr);
}

EditedReader::~EditedReader() {
  el_end(editor_);
  history_end(history_);
}

unsigned char EditedReader::on_interrupt(EditLine* editor, int /*key*/) {
  of(editor).interrupted_ = true;
  return CC_EOF;
}

unsigned char EditedReader::on_suspend(EditLine* editor, int /*key*/) {
  el_set(editor, EL_PREP_TERM, 0);
  raise(SIGTSTP);
  el_set(editor, EL_PREP_TERM, 1);
  return CC_REDISPLAY;
}

// Until the terminal says that this was all.
unsigned char EditedReader::on_paste(EditLine* editor, int /*key*/) {
  constexpr std::wstring_view kEnd = L"\x1b[201~";
  std::wstring text;
  wchar_t c = 0;
  while (!text.ends_with(kEnd) && el_wgetc(editor, &c) == 1) text += c == L'\r' ? L'\n' : c;
  if (text.ends_with(kEnd)) text.resize(text.size() - kEnd.size());
  while (text.ends_with(L'\n')) text.pop_back();
  // Other control characters are no text, and this editor would show them as two.
  std::erase_if(text, [](wchar_t one) { return one < L' ' && one != L'\n' && one != L'\t'; });
  return el_winsertstr(editor, text.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
}

unsigned char EditedReader::on_tab(EditLine* editor, int /*key*/) {
  const LineInfo* line = el_line(editor);
  const std::string_view typed(line->buffer, static_cast<size_t>(line->cursor - line->buffer));
  std::string common;
  bool found = false;
  for (const std::string& word : of(editor).words_) {
    if (typed.empty() || !word.starts_with(typed)) continue;
    if (!found) {
      common = word;
    } else {
      const auto differ = std::mismatch(common.begin(), common.end(), word.begin(), word.end());
      common.erase(differ.first, common.end());
    }
    found = true;
  }
  if (common.size() <= typed.size()) return CC_ERROR;
  const std::string rest = common.substr(typed.size());
  return el_insertstr(editor, rest.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
}

Input EditedReader::read(const std::string& prompt, std::string& line) {
  prompt_ = prompt;
  interrupted_ = false;
  int count = 0;
  // Before the prompt invites to type: what comes earlier is echoed by the terminal.
  el_set(editor_, EL_PREP_TERM, 1);
  print_message("\x1b[?2004h");  // pastes come as such
  const char* const typed = el_gets(editor_, &count);
  print_message("\x1b[?2004l");
  if (interrupted_) {
    el_reset(editor_);
    return Input::kInterrupted;
  }
  if (typed == nullptr || count <= 0) return interrupted.load() ? Input::kInterrupted : Input::kEnd;
  line.assign(typed, static_cast<size_t>(count));
  const bool whole = line.ends_with('\n');
  if (whole) line.pop_back();
  if (line.find_first_not_of(" \t\n") != std::string::npos) {
    HistEvent event = {};
    ::history(history_, &event, H_ENTER, line.c_str());
    if (!file_.empty()) ::history(history_, &event, H_SAVE, file_.c_str());
  }
  return Input::kLine;
}

bool can_edit() {
  const char* const terminal = std::getenv("TERM");
  return isatty(STDIN_FILENO) != 0 && isatty(STDERR_FILENO) != 0 && terminal != nullptr &&
         std::string_view(terminal) != "dumb" && *terminal != '\0';
}

// Without one that knows UTF-8, the editor would refuse it.
void set_character_set() {
  std::setlocale(LC_CTYPE, "");
  if (MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
}

}  // namespace

std::unique_ptr<LineReader> open_line_reader(const std::string& file,
                                             std::vector<std::string> words) {
  if (can_edit()) {
    set_character_set();
    EditLine* const editor = el_init("aerie", stdin, stderr, stderr);
    History* const history = history_init();
    if (editor != nullptr && history != nullptr) {
      return std::make_unique<EditedReader>(editor, history, file, std::move(words));
    }
    if (editor != nullptr) el_end(editor);
    if (history != nullptr) history_end(history);
  }
  return std::make_unique<PlainReader>();
}

}  // namespace aerie
