#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <gmock/gmock.h>
#include <sys/resource.h>

#include <boost/json.hpp>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include <fmt/format.h>
#include "base/testing/sanitized.h"
#include "text/test_files.h"

namespace invar::text {
namespace {

using testing::HasSubstr;

// For the rest of the process: what it has and so many bytes.
void limit_address_space(size_t more) {
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlimit limit{pages * 4096 + more, pages * 4096 + more};
  if (pages == 0 || ::setrlimit(RLIMIT_AS, &limit) != 0) std::_Exit(2);
}

std::shared_ptr<const ChatTemplate> compiled(std::string_view source,
                                             const ChatTemplateOptions& options = {}) {
  auto result = ChatTemplate::compile(source, options);
  EXPECT_TRUE(result.ok()) << result.status().message();
  return result.ok() ? *result : nullptr;
}

// Renders with a context of variables only.
Result<Rendered> render(std::string_view source, std::string_view context = "{}",
                        const RenderOptions& how = {}) {
  auto result = ChatTemplate::compile(source, {});
  if (!result.ok()) return result.status();
  return (*result)->render(context, 0, how);
}

std::string text_of(std::string_view source, std::string_view context = "{}") {
  auto result = render(source, context);
  return result.ok() ? result->text : "ERROR " + result.status().message();
}

TEST(ChatTemplate, oracle_cases_are_byte_identical) {
  const boost::json::value root = boost::json::parse(test_data("templates/cases.json"));
  int errors = 0, tracked = 0;
  const boost::json::array& cases = root.at("cases").as_array();
  EXPECT_EQ(cases.size(), 28u);
  for (const auto& c : cases) {
    SCOPED_TRACE(as_string(c.at("name")));
    const ChatTemplateOptions options{
        {{"bos_token", as_string(c.at("bos_token"))}, {"eos_token", as_string(c.at("eos_token"))}}};
    auto chat = compiled(test_data("templates/" + as_string(c.at("template"))), options);
    ASSERT_NE(chat, nullptr);
    RenderOptions how;
    how.continue_final_message = c.at("continue_final_message").as_bool();
    how.track_generation = c.at("track_generation").as_bool();
    const auto rendered = chat->render(as_string(c.at("context")), c.at("now").as_int64(), how);
    if (const auto* error = c.as_object().if_contains("error")) {
      ++errors;
      ASSERT_FALSE(rendered.ok());
      EXPECT_EQ(rendered.status().code(), Code::kInvalidArgument);
      EXPECT_EQ(rendered.status().message(),
                "the chat template refuses this conversation: " + as_string(*error));
      continue;
    }
    ASSERT_TRUE(rendered.ok()) << rendered.status().message();
    EXPECT_EQ(rendered->text, as_string(c.at("expected")));
    std::vector<Rendered::Range> ranges;
    if (const auto* expected = c.as_object().if_contains("generation_char_ranges")) {
      ++tracked;
      for (const auto& range : expected->as_array()) {
        ranges.push_back({range.at(0).to_number<uint64_t>(), range.at(1).to_number<uint64_t>()});
      }
    }
    EXPECT_EQ(rendered->generation, ranges);
  }
  EXPECT_EQ(errors, 4);
  EXPECT_EQ(tracked, 1);
}

TEST(ChatTemplate, tracking_generation_does_not_change_the_text) {
  const std::string source = test_data("templates/chatml-generation.jinja");
  // The first noncharacters are in the text itself, so other marks must be found.
  const std::string context =
      R"({"messages":[{"role":"assistant","content":")" + std::string("\uFDD0 x \uFDD1") + "\"}]}";
  auto chat = compiled(source);
  ASSERT_NE(chat, nullptr);
  const auto plain = chat->render(context, 0);
  const auto tracked = chat->render(context, 0, {.track_generation = true});
  ASSERT_TRUE(plain.ok() && tracked.ok());
  EXPECT_EQ(plain->text, tracked->text);
  EXPECT_TRUE(plain->generation.empty());
  ASSERT_EQ(tracked->generation.size(), 1u);
  EXPECT_EQ(tracked->generation[0].end - tracked->generation[0].begin, 15u);  // 5 characters and <|im_end|>
}

TEST(ChatTemplate, generation_tag_is_only_a_tag) {
  EXPECT_EQ(text_of("{{ '{% generation %}' }}{# {% generation %} #}{% raw %}{% generation %}{% endraw %}"),
            "{% generation %}{% generation %}");
  EXPECT_EQ(
      text_of("{% for i in [1, 2] %}{%- generation -%} {{ loop.index }} {%- endgeneration -%}{% endfor %}"),
      "12");
  EXPECT_EQ(text_of("{% set x = 1 %}{% generation %}{% set x = 2 %}{{ x }}{% endgeneration %}{{ x }}"), "21");
}

TEST(ChatTemplate, tojson_writes_what_json_dumps_writes) {
  const std::string context = R"({"v":{"b":[1,2.5,null,true],"a":"é<>&'\"\u0001"},"e":{"l":[],"m":{}}})";
  EXPECT_EQ(text_of("{{ v | tojson }}", context), R"({"b": [1, 2.5, null, true], "a": "é<>&'\"\u0001"})");
  EXPECT_EQ(text_of("{{ v | tojson(ensure_ascii=True, sort_keys=True) }}", context),
            R"({"a": "\u00e9<>&'\"\u0001", "b": [1, 2.5, null, true]})");
  EXPECT_EQ(text_of("{{ v.b | tojson(separators=(',', ':')) }}", context), "[1,2.5,null,true]");
  EXPECT_EQ(text_of("{{ v.b[:2] | tojson(indent=2) }}", context), "[\n  1,\n  2.5\n]");
  EXPECT_EQ(text_of("{{ v.b[:2] | tojson(indent='\t') }}", context), "[\n\t1,\n\t2.5\n]");
  EXPECT_EQ(text_of("{{ v.b[:2] | tojson(indent=0) }}", context), "[\n1,\n2.5\n]");
  EXPECT_EQ(text_of("{{ v.a | tojson(true) }}", context), R"("\u00e9<>&'\"\u0001")");
  EXPECT_EQ(text_of("{{ e | tojson(indent=4) }}", context), "{\n    \"l\": [],\n    \"m\": {}\n}");
  EXPECT_EQ(text_of("{{ {1: 'a', none: 2, true: 3} | tojson }}"),
            R"({"1": 3, "null": 2})");  // True == 1 in Python
  EXPECT_EQ(text_of("{{ '😀' | tojson(ensure_ascii=true) }}"), R"("\ud83d\ude00")");
}

TEST(ChatTemplate, numbers_keep_their_python_form) {
  const std::string context =
      R"({"n":[1e16,1e15,123456789.125,1e-5,0.0001,-0.0,0.1,5e-324,1.7976931348623157e308,)"
      R"(9007199254740993,18446744073709551616,-170141183460469231731687303715884105728]})";
  EXPECT_EQ(
      text_of("{{ n | tojson }}", context),
      "[1e+16, 1000000000000000.0, 123456789.125, 1e-05, 0.0001, -0.0, 0.1, 5e-324, 1.7976931348623157e+308, "
      "9007199254740993, 18446744073709551616, -170141183460469231731687303715884105728]");
}

TEST(ChatTemplate, repeated_keys_keep_the_first_place_and_the_last_value) {
  EXPECT_EQ(text_of("{{ v | tojson }}", R"({"v":{"a":1,"b":2,"a":3}})"), R"({"a": 3, "b": 2})");
}

TEST(ChatTemplate, strftime_now_shows_the_given_clock) {
  auto at = [](int64_t now, const std::string& format) {
    auto chat = compiled("{{ strftime_now('" + format + "') }}");
    const auto rendered = chat->render("{}", now);
    return rendered.ok() ? rendered->text : rendered.status().message();
  };
  const int64_t now = 1767604023;  // 2026-01-05 09:07:03, a Monday
  EXPECT_EQ(at(now, "%Y-%m-%d %H:%M:%S"), "2026-01-05 09:07:03");
  EXPECT_EQ(at(now, "%A %a %B %b %-d %e %I %p %j %y %%"), "Monday Mon January Jan 5  5 09 AM 005 26 %");
  EXPECT_EQ(at(now, "%F %T %D %R %u %w %U %W %V %G"), "2026-01-05 09:07:03 01/05/26 09:07 1 1 01 01 02 2026");
  EXPECT_EQ(at(now, "%^b %_m %-H"), "JAN  1 9");
  EXPECT_EQ(at(1709251199, "%d %b %Y %j"), "29 Feb 2024 060");
  EXPECT_EQ(at(-1, "%F %T"), "1969-12-31 23:59:59");
  EXPECT_EQ(at(1609459200 - 1, "%G-W%V %j"), "2020-W53 366");
  EXPECT_EQ(at(INT64_MAX, "%F"), "9999-12-31");
  EXPECT_EQ(at(INT64_MIN, "%m-%d"), "01-01");
}

TEST(ChatTemplate, carriage_returns_read_as_line_ends) {
  EXPECT_EQ(text_of("a\r\n{% if true %}\r\nb\rc\r\n{% endif %}\r\n"), "a\nb\nc\n");
}

TEST(ChatTemplate, the_named_template_is_chosen_as_the_reference_does) {
  const std::vector<NamedTemplate> both = {{"default", "D"}, {"tool_use", "T"}, {"rag", "R"}};
  auto chat = *ChatTemplate::compile(both, {});
  EXPECT_EQ(chat->render(R"({"messages":[]})", 0)->text, "D");
  EXPECT_EQ(chat->render(R"({"messages":[],"tools":[]})", 0)->text, "T");
  EXPECT_EQ(chat->render(R"({"messages":[],"tools":null})", 0)->text, "D");
  EXPECT_EQ(chat->render("{}", 0, {.template_name = "rag"})->text, "R");
  const auto missing = chat->render("{}", 0, {.template_name = "nope"});
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.status().message(),
            "chat template 'nope' is not in the model, which has: default, tool_use, rag");
  const std::vector<NamedTemplate> none = {{"a", "A"}, {"b", "B"}};
  EXPECT_FALSE((*ChatTemplate::compile(none, {}))->render("{}", 0).ok());
  const std::vector<NamedTemplate> twice = {{"a", "A"}, {"a", "B"}};
  EXPECT_FALSE(ChatTemplate::compile(twice, {}).ok());
  EXPECT_FALSE(ChatTemplate::compile(std::span<const NamedTemplate>(), {}).ok());
}

TEST(ChatTemplate, continue_final_message_cuts_or_says_why_not) {
  RenderOptions how{.continue_final_message = true};
  auto with = [&](std::string_view source, std::string_view messages) {
    auto result = render(source, fmt::format(R"({{"messages":{}}})", messages), how);
    return result.ok() ? result->text : "ERROR " + result.status().message();
  };
  const std::string_view trims = "{% for m in messages %}[{{ m.content | trim }}]{% endfor %}";
  EXPECT_EQ(with(trims, R"([{"content":"a"},{"content":" b "}])"), "[a][b");
  const std::string_view parts =
      "{% for m in messages %}{% for p in m.content %}<{{ p.text }}>{% endfor %}{% endfor %}";
  EXPECT_EQ(with(parts, R"([{"content":[{"text":"a"},{"text":"b "}]}])"), "<a><b ");
  EXPECT_NE(with(trims, "[]").find("no content"), std::string::npos);
  EXPECT_NE(with(trims, R"([{"content":[{"type":"image"}]}])").find("no text"), std::string::npos);
  EXPECT_NE(with("{{ messages[0].content[:1] }}", R"([{"content":"abc"}])").find("changes or drops"),
            std::string::npos);
}

TEST(ChatTemplate, hostile_templates_stop_with_an_error) {
  const std::string doubled =
      "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}";
  const std::string deep =
      "{% set ns = namespace(l=[1]) %}{% for i in range(99999) %}{% set ns.l = [ns.l] %}{% endfor %}";
  // More work, output, text or depth than allowed.
  for (const std::string& source :
       {std::string("{% for i in range(90000) %}{% for j in range(90000) %}x{% endfor %}{% endfor %}"),
        std::string("{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}"),
        std::string(
            "{% set ns = namespace(s='x' * 999) %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}"
            "{% endfor %}{{ ns.s }}"),
        doubled + "{{ ns.l | tojson }}", doubled + "{{ ns.l }}", doubled + "{{ ns.l == ns.l[0] }}",
        deep + "x", deep + "{{ ns.l }}", std::string(1 << 20, 'x'),
        std::string("{{ ('x' * 9999999) | replace('x', 'y' * 99999) }}"),
        std::string("{{ '%99999999999s' | format('x') }}"),
        std::string("{% for i in range(99999) %}"
                    "{% set x = ('x ' * 9999).split() %}{% endfor %}")}) {
    const auto result = render(source);
    ASSERT_FALSE(result.ok()) << source.substr(0, 100);
    EXPECT_EQ(result.status().code(), Code::kResourceExhausted) << result.status().message();
  }
  const auto wide = render("{{ s * 70 }}", fmt::format(R"({{"s":"{}"}})", std::string(1 << 20, 'y')));
  ASSERT_FALSE(wide.ok());
  EXPECT_EQ(wide.status().code(), Code::kResourceExhausted);
  // Depth without a namespace: the source itself nests, as far as its size allows.
  std::string nested = "{% set a = [1] %}";
  for (int i = 0; i < 15000; ++i)
    nested += "{% set a=[a] %}";
  EXPECT_FALSE(render(nested + "{{ a }}").ok());
  EXPECT_THAT(render(nested + "{{ (a ~ '') | length }}").status().message(), HasSubstr("nested too deeply"));
  EXPECT_TRUE(render(nested + "{{ a == a[0] }}").ok());
  // A namespace that holds itself would print for ever.
  for (const char* source : {"{% set n = namespace() %}{% set n.n = n %}{{ n }}",
                             "{% set n = namespace() %}{%- set  n . n=[n]-%}{{ n | string }}"}) {
    EXPECT_NE(render(source).status().message().find("kept in a namespace"), std::string::npos);
  }
  for (const char* source : {"{% include 'default' %}", "{% include 'other' %}", "{% extends 'default' %}",
                             "{% import 'default' as d %}"}) {
    EXPECT_FALSE(render(source).ok()) << source;
  }
  EXPECT_FALSE(render("{{ " + std::string(100000, '(') + " }}").ok());
}

// Whatever a short template asks for, and however little of it the engine has counted by then.
constexpr const char* kHungryTemplates[] = {
    "{{ '{:>99999999999999}'.format(1) }}",
    "{{ '{:>999999999}'.format(1) }}",
    "{{ '{:.99999999999f}'.format(1.5) }}",
    "{{ '{:099999999999d}'.format(1) }}",
    "{{ '{0:\u20ac^99999999}'.format(1) }}",
    "{{ ('{0}' * 9999).format('x' * 999999) }}",
    "{{ '{0}{0}{0}{0}{0}'.format(([0] * 9999999)) }}",
    "{{ '%0999999999d' | format(1) }}",
    "{{ '%*d' | format(999999999, 1) }}",
    "{{ '%.999999999f' | format(1.5) }}",
    "{{ '%s%s' | format([[0] * 999999] * 999, [[0] * 999999] * 999) }}",
    "{{ 'a'.join(['b' * 100000] * 100000) | length }}",
    "{{ ('a' * 999999).join([1] * 999999) }}",
    "{{ ['b' * 1000000] * 1000 | join('x') }}",
    "{{ (['b' * 1000000] * 1000) | join('x') | length }}",
    "{{ (['b' * 1000000] * 1000) | sum(start='') | length }}",
    "{{ ('a' * 9000000) | split('a') | length }}",
    "{{ ('a' * 9000000).split('a') | length }}",
    "{{ ('\n' * 9000000) | lines | length }}",
    "{{ ('\n' * 9000000).splitlines() | length }}",
    "{{ ('a ' * 9000000).split() | length }}",
    "{{ ('a' * 9000000).replace('', 'b' * 9000) | length }}",
    "{{ ('a' * 9000000) | replace('', 'b' * 9000) | length }}",
    "{{ 'a' | indent(9999999999) }}",
    "{{ ('a\n' * 99999) | indent(99999) | length }}",
    "{{ ([0] * 3000000) | batch(1) | list | length }}",
    "{{ [0] | batch(99999999, 0) | list }}",
    "{{ [0] | slice(99999999) | list }}",
    "{{ [0] | slice(9999999, 0) | list }}",
    "{% set a = [0] * 3000000 %}{{ a | zip(a) | list | length }}",
    "{% set a = [0] * 90000 %}{{ (a | zip(a, a, a) | list) ~ (a | zip(a) | list) }}",
    "{{ (([[[[0] * 999] * 999] * 999] * 999) ~ '') | length }}",
    "{{ ('' ~ [[[[0] * 999] * 999] * 999] * 999) | length }}",
    "{{ (1 ~ 'x' * 2 ~ [[[[0] * 999] * 999] * 999]) | length }}",
    "{{ ([[[[0] * 999] * 999] * 999] * 999) | upper | length }}",
    "{{ ([[[[0] * 999] * 999] * 999] * 999) | string | length }}",
    "{{ ([[[[0] * 999] * 999] * 999] * 999) | pprint | length }}",
    "{{ ([[[[0] * 999] * 999] * 999] * 999) | striptags | length }}",
    "{{ ([[[[0] * 999] * 999] * 999] * 999) | replace('x', 'y') }}",
    "{{ 'x' | replace([[[[0] * 999] * 999] * 999] * 999, 'y') }}",
    "{{ ([[[[0] * 999] * 999] * 999] * 999) | tojson | length }}",
    "{{ ([[[[0] * 999] * 999] * 999] * 999) in 'x' }}",
    "{{ ([[[[0] * 999] * 999] * 999] * 999) not in 'x' }}",
    "{{ ([[[[0] * 999] * 999] * 999] * 999) is in 'x' }}",
    "{{ ([[[[0] * 999] * 999] * 999] * 999) is startingwith('x') }}",
    "{{ 'x' is endingwith([[[[0] * 999] * 999] * 999] * 999) }}",
    "{{ raise_exception([[[[0] * 999] * 999] * 999] * 999) }}",
    "{{ strftime_now([[[[0] * 999] * 999] * 999] * 999) }}",
    "{{ strftime_now('%c' * 4000000) | length }}",
    "{{ debug([[[[0] * 999] * 999] * 999] * 999) }}",
    "{{ [1] | tojson(indent='x' * 9000000) | length }}",
    "{{ ([1] * 99999) | tojson(separators=('x' * 900000, '')) | length }}",
    "{{ ('\x01' * 9000000) | tojson | length }}",
    "{{ (\"'\" * 9000000) | e | length }}",
    "{{ ('\u0390' * 9000000) | upper | length }}",
    "{{ ('\u0390' * 9000000).upper() | length }}",
    "{{ ('a' * 9999999 ~ 'a' * 9999999 ~ 'a' * 9999999) | truncate(length=29999998) | length }}",
    "{{ 'a' * 9999999999 }}",
    "{{ ('a' * 9999999) * 99 }}",
    "{{ (1, 2) * 99999999 }}",
    "{{ range(999999999) | list | length }}",
    "{% set x %}{{ ['a' * 9000000] * 99999 }}{% endset %}{{ x | length }}",
    "{% for i in range(99) %}{{ 'a' * 9000000 }}{% endfor %}",
    "{% set n = namespace(s='a' * 9000000) %}{% for i in range(9) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
};

// A child process with little room above what it has renders each one: an allocation that fails ends it.
TEST(ChatTemplate, a_short_template_cannot_ask_for_much_memory) {
  constexpr size_t kAllowed = 256 << 20;
  constexpr size_t kThreadStack = 256 << 20;  // address space of a render
  constexpr size_t kArena = 128 << 20;        // malloc reserves it for a new thread
  for (const char* source : kHungryTemplates) {
    ASSERT_LT(std::string_view(source).size(), 200u);
    const auto result = ChatTemplate::compile(source, {});
    ASSERT_TRUE(result.ok()) << source << result.status().message();
    const auto& chat = *result;
    EXPECT_EXIT(
        {
          if (!INVAR_SANITIZED) limit_address_space(kAllowed + kThreadStack + kArena);
          const auto rendered = chat->render("{}", 0);
          std::_Exit(rendered.ok() && rendered->text.size() > kAllowed ? 1 : 0);
        },
        testing::ExitedWithCode(0), "")
        << source;
  }
}

TEST(ChatTemplate, what_is_too_large_is_said_with_the_limit) {
  const auto error_of = [](const char* source) {
    const auto result = render(source);
    EXPECT_EQ(result.status().code(), Code::kResourceExhausted) << source;
    return result.status().message();
  };
  EXPECT_THAT(error_of("{{ '{:>999999999}'.format(1) }}"),
              HasSubstr("format: up to 4000000049 bytes, the limit is 33554432 (line 1)"));
  EXPECT_THAT(error_of("{{ '{:.99999999999f}'.format(1.5) }}"), HasSubstr("the limit is 33554432"));
  EXPECT_THAT(error_of("{{ 'a'.join(['b' * 100000] * 100000) }}"), HasSubstr("join: up to "));
  EXPECT_THAT(error_of("{{ ('a' * 9000000).split('a') }}"), HasSubstr("split: more than 1000000 values"));
  EXPECT_THAT(error_of("{{ [0] | slice(99999999) }}"), HasSubstr("slice: more than 1000000 values"));
  EXPECT_THAT(error_of("{{ 'a' | indent(9999999999) }}"), HasSubstr("indent: up to 10000000000 bytes"));
  EXPECT_THAT(error_of("{{ [1] | tojson(indent='x' * 9000000, separators=('x' * 9000000, 'y' * 9000000)) ~ "
                       "[1, 2, 3, 4] | tojson(indent='x' * 9000000) }}"),
              HasSubstr("tojson: more than 33554432 bytes"));
}

TEST(ChatTemplate, operands_of_any_form_may_stand_beside_a_tilde_or_in) {
  const char* const context = R"({"a":[1,2],"d":{"in":"I","if":"F","k":["x"]},"s":"text","n":3})";
  const std::pair<const char*, const char*> cases[] = {
      {"{{ a ~ s ~ n }}", "[1, 2]text3"},
      {"{{ 2 * n ~ -n ~ n ** 2 ~ n // 2 ~ n % 2 }}", "6-3911"},
      {"{{ d.in ~ d.if ~ d['in'] ~ d.k[0] ~ d.k[-1:] }}", "IFIx['x']"},
      {"{{ s | upper ~ s | length ~ (s ~ a[0]) | upper }}", "TEXT4TEXT1"},
      {"{{ s ~ (n if n in a else 'no') ~ ('yes' if 2 in a else 'no') }}", "textnoyes"},
      {"{{ s if s ~ n == 'text3' and n not in a else 0 }}", "text"},
      {"{{ not n ~ s in 'a' }}", "True"},
      {"{{ n is defined ~ s }}", "Truetext"},
      {"{{ s ~ n is divisibleby 3 }}", "textTrue"},
      {"{{ [s ~ n, n ~ s] }}{{ {'k': s ~ n} }}", "['text3', '3text']{'k': 'text3'}"},
      {"{% set x, y = s ~ n, n ~ s %}{{ x }} {{ y }}", "text3 3text"},
      {"{% for c in s ~ n if c in 'tx3' %}{{ c }}{% endfor %}", "txt3"},
      {"{% for k in d if k ~ '' in ['in', 'k'] %}{{ k }}{% endfor %}", "ink"},
      {"{%- if s ~ n == 'text3' -%} 1 {%- elif s ~ 1 in a -%} 2 {%- endif -%}", "1"},
      {"{% macro f(x, y='a' ~ 'b') %}{{ x ~ y }}{% endmacro %}{{ f(x=s ~ n) ~ f(1, y=2 ~ 3) }}",
       "text3ab123"},
      {"{% set ns = namespace(t='') %}{% set ns.t = ns.t ~ s %}{{ ns.t ~ missing ~ none }}", "textNone"},
      {"{{ '~ in' ~ \"a ~ b in c\" }}{# a ~ b #}~ in {% raw %}{{ a ~ b }}{% endraw %}",
       "~ ina ~ b in c~ in {{ a ~ b }}"},
      {"{{ s.replace('t', 'T' ~ n) ~ s[1:3] ~ s.upper() }}", "T3exT3exTEXT"},
  };
  for (const auto& [source, expected] : cases)
    EXPECT_EQ(text_of(source, context), expected) << source;
}

TEST(ChatTemplate, long_chains_stop_at_a_limit_before_they_cost_time) {
  const auto repeated = [](const std::string& unit, size_t bytes) {
    std::string out;
    while (out.size() + unit.size() <= bytes)
      out += unit;
    return out;
  };
  // Compiling takes the square of a tag's length: at this size up to a minute.
  for (const char* unit :
       {"+1", "~x", " and 1", " or 0", " in x", "==1", "**1", "-x", " if x", " if x else 1", ".b", "[0]",
        "()", "|e", "|e(1)", " is defined", " is not defined"}) {
    const auto result = ChatTemplate::compile("a\n{{ x" + repeated(unit, 60000) + " }}", {});
    ASSERT_FALSE(result.ok()) << unit;
    EXPECT_EQ(result.status().code(), Code::kResourceExhausted) << unit;
    EXPECT_EQ(result.status().message(),
              "chat_template: a tag has more than 500 operators, names and values (line 2)")
        << unit;
  }
  for (const char* unit : {"-", "not ", "(", "[", "{1:", "[1,", "-("}) {
    for (const char* form : {"{{ ", "{% if ", "{% set x = ", "{%- set n.x = "}) {
      const auto result = ChatTemplate::compile(form + repeated(unit, 60000), {});
      EXPECT_EQ(result.status().code(), Code::kResourceExhausted) << form << unit;
    }
  }
  // The lexer that counts is the parser's: text that looks like a tag or hides one makes no difference.
  for (const char* prefix : {"{% raw %}{{ ' {% endraw %}", "{% raw %}{%-- endraw %}{{ ' {% endraw %}",
                             "{# {{ ' #}", "{{ '{{' }}", "{{ \"\\\"\" }}"}) {
    const auto result =
        ChatTemplate::compile(prefix + std::string("{{ x") + repeated("+1", 60000) + " }}", {});
    EXPECT_EQ(result.status().code(), Code::kResourceExhausted) << prefix;
  }
  // Many tags of the greatest length, and long chains of tags, are a matter of a second: without the limit
  // this test would not end.
  const std::string longest = "{{ x" + repeated("-", 490) + "1 }}";
  EXPECT_TRUE(ChatTemplate::compile(repeated(longest, 250000), {}).ok());
  EXPECT_TRUE(
      ChatTemplate::compile("{% if a %}" + repeated("{% elif b %}", 250000) + "{% endif %}", {}).ok());
  // Half a million bytes are too many in several templates as in one.
  const std::vector<NamedTemplate> two = {{"a", std::string(200000, 'x')}, {"b", std::string(200000, 'x')}};
  EXPECT_EQ(ChatTemplate::compile(two, {}).status().code(), Code::kResourceExhausted);
}

TEST(ChatTemplate, texts_of_a_template_are_short_and_harmless_in_errors) {
  const auto raised = render("{{ raise_exception('\\x1b[2J' ~ 'first\\nsecond') }}");
  EXPECT_EQ(raised.status().message(), "the chat template refuses this conversation: \\x1b[2Jfirst\\nsecond");
  EXPECT_LT(render("{{ raise_exception('x' * 1000000) }}").status().message().size(), 300u);
  EXPECT_LT(render("{{ 1 | " + std::string(100000, 'f') + " }}").status().message().size(), 400u);
  const std::vector<NamedTemplate> long_names = {{std::string(100000, 'a'), "A"}, {"b\x1b", "B"}};
  const auto missing = (*ChatTemplate::compile(long_names, {}))->render("{}", 0);
  EXPECT_LT(missing.status().message().size(), 400u);
}

TEST(ChatTemplate, namespace_values_of_every_form_are_kept) {
  EXPECT_EQ(text_of("{% set n = namespace(a=1) %}{% set n.a = n.a + 1 %}{%- set n.b = 1, 2 -%}{% set n.c='x' "
                    "if n.a == 2 %}"
                    "{%+ set n.d = '%}' ~ \"}\" %}{% set n.e %}block{% endset %}{{ n.a }}{{ n.b }}{{ n.c "
                    "}}{{ n.d }}{{ n.e }}"),
            "2(1, 2)x%}}block");
}

TEST(ChatTemplate, a_long_chat_stays_within_the_limits) {
  std::string messages;
  for (int i = 0; i < 2000; ++i) {
    messages += fmt::format(R"({}{{"role":"{}","content":"{}"}})", i == 0 ? "" : ",",
                            i % 2 == 0 ? "user" : "assistant", std::string(500, 'w'));
  }
  auto chat = compiled(test_data("templates/qwen3.jinja"));
  const auto rendered = chat->render(R"({"messages":[)" + messages + "]}", 0);
  ASSERT_TRUE(rendered.ok()) << rendered.status().message();
  EXPECT_GT(rendered->text.size(), 1000000u);
}

TEST(ChatTemplate, errors_name_the_line) {
  const auto syntax = ChatTemplate::compile("a\n{% if %}", {});
  ASSERT_FALSE(syntax.ok());
  EXPECT_NE(syntax.status().message().find("line 2"), std::string::npos) << syntax.status().message();
  const auto runtime = render("a\n\n{{ nothing.at.all }}");
  ASSERT_FALSE(runtime.ok());
  EXPECT_NE(runtime.status().message().find("line 3"), std::string::npos) << runtime.status().message();
}

TEST(ChatTemplate, broken_contexts_are_refused) {
  for (const std::string context :
       {"", "[]", "{", "{\"a\":}", "{\"a\":01}", "{\"a\":\"\\ud800\"}", "{\"a\":\"\x01\"}", "{} x",
        "{\"a\":1e999}", "{\"messages\":3}", "{\"messages\":[3]}", "{\"a\":\"\xff\"}", "{\"a\":tru}",
        "{\"a\" 1}", "{\"a\":\"\\u12\"}"}) {
    EXPECT_EQ(render("x", context).status().code(), Code::kInvalidArgument) << context;
  }
  EXPECT_FALSE(render("x", "{\"a\":" + std::string(100000, '[')).ok());
}

TEST(ChatTemplate, renders_in_parallel_do_not_mix) {
  auto chat = compiled("{% for i in range(50) %}{{ strftime_now('%S') }}{% endfor %}{{ name }}");
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        const auto rendered = chat->render(fmt::format(R"({{"name":"n{}"}})", t), t);
        std::string expected;
        for (int k = 0; k < 50; ++k)
          expected += fmt::format("{:02}", t);
        ASSERT_TRUE(rendered.ok());
        EXPECT_EQ(rendered->text, expected + fmt::format("n{}", t));
      }
    });
  }
  for (auto& thread : threads)
    thread.join();
}

TEST(HfConfig, tokens_and_templates_are_read_in_both_forms) {
  const auto config = parse_hf_tokenizer_config(
      R"({"bos_token":{"content":"<s>","lstrip":false},"eos_token":"</s>","pad_token":null,"add_bos_token":true,
          "chat_template":[{"name":"default","template":"D"},{"name":"tool_use","template":"T"}]})");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->special_token("bos_token"), "<s>");
  EXPECT_EQ(config->special_token("eos_token"), "</s>");
  EXPECT_EQ(config->special_token("pad_token"), "");
  EXPECT_EQ(config->add_bos, true);
  EXPECT_EQ(config->add_eos, std::nullopt);
  ASSERT_EQ(config->chat_templates.size(), 2u);
  EXPECT_EQ(config->chat_templates[1].source, "T");
  EXPECT_EQ(parse_hf_tokenizer_config(R"({"chat_template":"X"})")->chat_templates[0].name, "default");
  for (const char* broken :
       {"[", "3", R"({"bos_token":3})", R"({"chat_template":[{"name":"x"}]})", R"({"add_bos_token":"y"})"}) {
    EXPECT_EQ(parse_hf_tokenizer_config(broken).status().code(), Code::kCorrupt) << broken;
  }
}

}  // namespace
}  // namespace invar::text
