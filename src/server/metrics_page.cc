#include "server/metrics_page.h"

#include <fmt/format.h>

#include <cmath>

#include "base/check.h"

namespace invar::server {
namespace {

// Whole numbers without an exponent: some readers of counters want that.
std::string number_text(double value) {
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  if (std::isnan(value)) return "NaN";
  if (value == double(int64_t(value)) && std::abs(value) < 9e15) return fmt::format("{}", int64_t(value));
  return fmt::format("{}", value);
}

void append_escaped(std::string& out, std::string_view text, bool quotes) {
  for (const char c : text) {
    if (c == '\\') {
      out += "\\\\";
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '"' && quotes) {
      out += "\\\"";
    } else {
      out.push_back(c);
    }
  }
}

}  // namespace

void MetricsPage::begin(std::string_view name, std::string_view help, std::string_view type) {
  name_ = name;
  text_.append("# HELP ").append(name).append(" ");
  append_escaped(text_, help, false);
  text_.append("\n# TYPE ").append(name).append(" ").append(type).append("\n");
}

void MetricsPage::line(std::string_view suffix, Labels labels, std::string_view more_name,
                       std::string_view more_value, double value) {
  text_.append(name_).append(suffix);
  char before = '{';
  const auto label = [&](std::string_view name, std::string_view text) {
    text_.push_back(before);
    text_.append(name).append("=\"");
    append_escaped(text_, text, true);
    text_.push_back('"');
    before = ',';
  };
  for (const auto& [name, text] : labels)
    label(name, text);
  if (!more_name.empty()) label(more_name, more_value);
  if (before == ',') text_.push_back('}');
  text_.append(" ").append(number_text(value)).append("\n");
}

void MetricsPage::histogram_samples(Labels labels, std::span<const double> bounds,
                                    std::span<const int64_t> counts, double sum) {
  CHECK(counts.size() == bounds.size() + 1);
  int64_t total = 0;
  for (size_t i = 0; i < counts.size(); i++) {
    total += counts[i];
    line("_bucket", labels, "le", i < bounds.size() ? number_text(bounds[i]) : "+Inf", double(total));
  }
  line("_sum", labels, "", "", sum);
  line("_count", labels, "", "", double(total));
}

}  // namespace invar::server
