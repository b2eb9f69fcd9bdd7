// What pickles come to, and that nothing but values comes of them.
#include "format/torch/pickle.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/format/torch/torch_writer.h"

namespace aerie::pickle_test {

using test::number_text;
using test::pickle_global;
using test::pickle_string;
using ::testing::HasSubstr;
using namespace std::string_literals;

// With the bytes that it views.
struct Parsed {
  std::vector<std::byte> bytes;
  Expected<Pickle> pickle = Status(StatusCode::kNotFound, "not parsed");
};

Parsed parse(const std::string& text) {
  Parsed parsed;
  parsed.bytes = test::bytes_of_text(text);
  parsed.pickle = Pickle::parse(parsed.bytes, "x");
  return parsed;
}

void expect_refused(const std::string& text, StatusCode code, const std::string& part) {
  const Parsed parsed = parse(text);
  const Status status = parsed.pickle.status();
  EXPECT_EQ(status.code(), code) << status.message();
  EXPECT_TRUE(status.message().starts_with("x: byte ")) << status.message();
  EXPECT_THAT(status.message(), HasSubstr(part));
}

// Repr of Python, in short.
std::string show(const Pickle& pickle, PickleId id) {
  const PickleValue& value = pickle.at(id);
  std::string inside;
  for (const PickleId item : pickle.items(id)) inside += show(pickle, item) + ",";
  switch (value.kind) {
    case PickleKind::kNone:
      return "None";
    case PickleKind::kBool:
      return value.integer != 0 ? "True" : "False";
    case PickleKind::kInteger:
      return std::to_string(value.integer);
    case PickleKind::kFloat:
      return std::to_string(value.number);
    case PickleKind::kString:
      return fmt::format("'{}'", value.text);
    case PickleKind::kBytes:
      return fmt::format("b'{}'", value.text);
    case PickleKind::kList:
      return fmt::format("[{}]", inside);
    case PickleKind::kTuple:
      return fmt::format("({})", inside);
    case PickleKind::kDict:
      return fmt::format("{{{}}}", inside);
    case PickleKind::kGlobal:
      return std::string(value.text);
    case PickleKind::kCall:
      return fmt::format("{}({})", value.text, inside);
    case PickleKind::kPersistent:
      return fmt::format("at({})", inside);
  }
  return "?";
}

std::string shown(const std::string& text) {
  const Parsed parsed = parse(text);
  if (!parsed.pickle.ok()) return parsed.pickle.status().message();
  EXPECT_EQ(parsed.pickle->bytes(), text.size());
  return show(*parsed.pickle, parsed.pickle->root());
}

TEST(Pickle, Values) {
  EXPECT_EQ(shown("\x80\x02N."), "None");
  EXPECT_EQ(shown("(\x88\x89t."), "(True,False,)");
  EXPECT_EQ(shown("(K\xFFM\xFF\xFFJ\xFF\xFF\xFF\xFFt."), "(255,65535,-1,)");
  EXPECT_EQ(shown("(\x8A\0\x8A\1\x80\x8A\2\xE8\3\x8B\1\0\0\0\x7Ft."s), "(0,-128,1000,127,)");
  EXPECT_EQ(shown("\x8A\x08\1\2\3\4\5\6\7\x08."), "578437695752307201");
  EXPECT_EQ(shown("G\xBF\xF8\0\0\0\0\0\0."s), "-1.500000");
  EXPECT_EQ(shown("\x8C\3abc."), "'abc'");
  EXPECT_EQ(shown("\x8D\3\0\0\0\0\0\0\0abc."s), "'abc'");
  EXPECT_EQ(shown("C\2\xFF!."), "b'\xFF!'");
  EXPECT_EQ(shown("B\1\0\0\0z."s), "b'z'");
  EXPECT_EQ(shown("U\2ab."), "'ab'");
  EXPECT_EQ(shown("U\1\xFF."), "b'\xFF'");
  EXPECT_EQ(shown("T\1\0\0\0z."s), "'z'");
}

TEST(Pickle, Containers) {
  EXPECT_EQ(shown("]K\1a(K\2K\3e."), "[1,2,3,]");
  EXPECT_EQ(shown("(K\1l."), "[1,]");
  EXPECT_EQ(shown("K\1\x85K\2K\3\x86K\4K\5K\6\x87\x87."), "((1,),(2,3,),(4,5,6,),)");
  EXPECT_EQ(shown("}K\1K\2s(K\3K\4u."), "{1,2,3,4,}");
  EXPECT_EQ(shown("(K\1K\2d."), "{1,2,}");
  EXPECT_EQ(shown(")K\7\x30."), "()") << "POP";
  EXPECT_EQ(shown(")(K\7K\7\x31."), "()") << "POP_MARK";
  EXPECT_EQ(shown("K\1\x32\x86."), "(1,1,)") << "DUP";
}

TEST(Pickle, Memo) {
  EXPECT_EQ(shown("]q\1K\1ah\1\x86."), "([1,],[1,],)");
  EXPECT_EQ(shown("]r\0\1\0\0K\1aj\0\1\0\0\x86."s), "([1,],[1,],)");
  EXPECT_EQ(shown("K\5\x94K\6\x94h\0h\1\x86\x87."s), "(5,6,(5,6,),)");
  expect_refused("h\1.", StatusCode::kInvalidData, "byte 0: nothing was kept under 1");
}

TEST(Pickle, WhatTensorsAreMadeOf) {
  EXPECT_EQ(shown(pickle_global("collections", "OrderedDict") + ")RK\1K\2s."), "{1,2,}");
  EXPECT_EQ(shown(pickle_global("collections", "OrderedDict") + ")R}K\1K\2sb."), "{}")
      << "attributes are left out";
  EXPECT_EQ(shown(pickle_global("torch", "Size") + "K\1K\2\x86\x85R."), "(1,2,)");
  EXPECT_EQ(shown(pickle_global("torch", "float16") + "."), "torch.float16");
  EXPECT_EQ(shown("\x8C\x05torch\x8C\x04"
                  "bool\x93."),
            "torch.bool");
  EXPECT_EQ(shown(pickle_global("torch._utils", "_rebuild_parameter") + "K\1\x85R."),
            "torch._utils._rebuild_parameter(1,)");
  EXPECT_EQ(shown("K\1Q."), "at(1,)");
}

TEST(Pickle, RunsNothing) {
  constexpr auto kNo = StatusCode::kUnsupported;
  expect_refused(pickle_global("os", "system") + pickle_string("true") + "\x85R.", kNo,
                 "byte 0: would run code: it names 'os.system'");
  expect_refused(pickle_global("posix", "system") + ")R.", kNo, "'posix.system'");
  expect_refused(pickle_global("builtins", "eval") + ")R.", kNo, "'builtins.eval'");
  expect_refused(pickle_global("__builtin__", "exec") + ")R.", kNo, "'__builtin__.exec'");
  expect_refused(pickle_string("builtins") + pickle_string("getattr") + "\x93.", kNo,
                 "'builtins.getattr'");
  expect_refused(pickle_string("torch") + pickle_string("float32.__class__") + "\x93.", kNo,
                 "'torch.float32.__class__'");
  expect_refused(pickle_global("torch", "load") + ")R.", kNo, "'torch.load'");
  expect_refused(pickle_global("torch\x1b[2J", "x") + ")R.", kNo, "'torch\\x1b[2J.x'");
  expect_refused(pickle_global("torch", "FloatStorage") + ")R.", kNo,
                 "would run code: it calls 'torch.FloatStorage'");
  expect_refused(pickle_global("torch", "float16") + ")R.", kNo, "it calls 'torch.float16'");
  // INST, OBJ, NEWOBJ, NEWOBJ_EX, EXT1: other ways to make objects. PERSID, text forms: not needed.
  for (const char* text :
       {"(ios\nsystem\n.", "(K\1o.", ")\x81.", ")}\x92.", "\x82\1.", "P0\n.", "I1\n.", "\xFF."}) {
    expect_refused(text, kNo, "is not one that files of tensors need");
  }
}

TEST(Pickle, Broken) {
  constexpr auto kNo = StatusCode::kInvalidData;
  expect_refused("", kNo, "bytes are missing");
  expect_refused("K\1", kNo, "byte 2");
  expect_refused(".", kNo, "the stack has too few values");
  expect_refused("K\1K\1.", kNo, "left on the stack");
  expect_refused("K\1(.", kNo, "the stack has too few values");
  expect_refused("(0.", kNo, "the stack has too few values");
  expect_refused("K\1t.", kNo, "there is no mark");
  expect_refused("K\1K\1a.", kNo, "added to what is no list");
  expect_refused("]K\1K\1s.", kNo, "set of what is no dict");
  expect_refused("}(K\1u.", kNo, "a key has no value");
  expect_refused("(K\1d.", kNo, "a key has no value");
  expect_refused("K\1Nb.", kNo, "attributes are set of what has none");
  expect_refused("K\1)R.", kNo, "something is called that is no function");
  expect_refused(pickle_global("collections", "OrderedDict") + "]R.", kNo, "tuple of arguments");
  expect_refused(pickle_global("torch", "Size") + ")R.", kNo, "torch.Size");
  expect_refused("c" + std::string(5000, 'a'), kNo, "does not end");
  expect_refused(
      "X\xFF\xFF\xFF\xFF"
      "abc.",
      kNo, "bytes are missing");
  expect_refused(
      "\x8D\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF"
      "abc.",
      kNo, "bytes are missing");
  expect_refused("\x8B\xFF\xFF\xFF\x7F.", StatusCode::kUnsupported, "more than 64 bits");
  expect_refused("\x8C\1\xFF.", kNo, "not UTF-8");
  expect_refused("K\1K\1\x93.", kNo, "name is no string");
  expect_refused("\x95\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFFN.", kNo, "bytes are missing");
  expect_refused("\x80\x06N.", StatusCode::kUnsupported, "protocol 6");
}

TEST(Pickle, DeepAndLong) {
  std::string deep(200'000, ']');
  deep += std::string(199'999, 'a') + ".";
  EXPECT_TRUE(parse(deep).pickle.ok());
  const std::string self = "]q\1h\1a.";
  const Parsed loop = parse(self);
  ASSERT_TRUE(loop.pickle.ok());
  EXPECT_EQ(loop.pickle->items(loop.pickle->root())[0], loop.pickle->root());
  std::string large = "N" + std::string(kMaxPickleBytes, '(');
  expect_refused(large, StatusCode::kInvalidData, "pickles of up to 16777216 bytes are read");
}

}  // namespace aerie::pickle_test
