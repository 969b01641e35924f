#pragma once
// MetricsPage: the text format of Prometheus (0.0.4). Families come whole, each once.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace invar::server {

class MetricsPage {
 public:
  using Labels = std::initializer_list<std::pair<std::string_view, std::string_view>>;

  void counter(std::string_view name, std::string_view help) { begin(name, help, "counter"); }
  void gauge(std::string_view name, std::string_view help) { begin(name, help, "gauge"); }
  void histogram(std::string_view name, std::string_view help) { begin(name, help, "histogram"); }
  // A sample of the family that was begun last.
  void sample(Labels labels, double value) { line("", labels, "", "", value); }
  // counts[i] = observations up to bounds[i] and above bounds[i - 1]; the last one is above all bounds.
  void histogram_samples(Labels labels, std::span<const double> bounds, std::span<const int64_t> counts,
                         double sum);

  std::string& text() { return text_; }

 private:
  void begin(std::string_view name, std::string_view help, std::string_view type);
  void line(std::string_view suffix, Labels labels, std::string_view more_name, std::string_view more_value,
            double value);

  std::string text_;
  std::string name_;
};

}  // namespace invar::server
