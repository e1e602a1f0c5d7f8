#include "bench/kolo_bench/report.h"

#include <iostream>
#include <numeric>
#include <thread>

#include "bench/common/text.h"

namespace kolo::bench {
namespace {

using Json = nlohmann::json;

std::string redop_of(const Subject& subject) {
  return reduces(subject.collective) ? std::string(op_name(subject.op)) : "none";
}

int root_of(const Subject& subject) {
  return subject.collective == Collective::kBroadcast ? subject.root : -1;
}

std::string subject_text(const Subject& subject) {
  return format("%12zu  %12zu  %11s  %6s  %6d", subject.bytes, subject.count,
                std::string(dtype_name(subject.dtype)).c_str(), redop_of(subject).c_str(),
                root_of(subject));
}

// Four or five significant digits, as wide as its column.
std::string time_text(double us) {
  return format(us < 100 ? "%9.2f" : us < 10'000 ? "%9.1f" : "%9.0f", us);
}

constexpr const char* kSubjectHead = "#       size         count         type   redop    root";
constexpr const char* kSubjectUnits = "#        (B)    (elements)                             ";

}  // namespace

void Counted::add(const Counted& other) {
  for (const auto& [name, total] : other.totals) totals[name] += total;
  operations += other.operations;
}

Printer::Printer(const Options& options, const Library& library)
    : options_(options),
      facts_(library.facts()),
      ranks_(library.size()),
      prints_(library.rank() == 0) {
  if (!prints_) return;
  if (!options_.json.empty()) {
    json_.open(options_.json, std::ios::app);
    if (!json_) die("cannot write to " + options_.json);
  }
  print_head();
}

void Printer::print_head() const {
  const auto cores = std::thread::hardware_concurrency();
  std::cout << "# " << facts_.system << " " << facts_.version << ", road " << facts_.road << ", "
            << ranks_ << (ranks_ == 1 ? " rank on " : " ranks on ") << facts_.hosts
            << (facts_.hosts == 1 ? " host, " : " hosts, ") << cores << " cores here\n"
            << "# " << collective_name(options_.collective) << ", memory from " << facts_.memory
            << ", inputs " << (options_.refill ? "written anew before each call" : "repeated")
            << "; iters " << options_.iterations << ", warmup " << options_.warmups << ", check "
            << options_.checks << "\n#\n";
  switch (options_.mode) {
    case Mode::kSweep:
      std::cout << "#" << std::string(58, ' ') << "out-of-place                          in-place\n"
                << kSubjectHead << "     time    algbw    busbw  #wrong"
                << "      time    algbw    busbw  #wrong\n"
                << kSubjectUnits << "     (us)   (GB/s)   (GB/s)        "
                << "      (us)   (GB/s)   (GB/s)\n";
      break;
    case Mode::kLatency:
      std::cout << kSubjectHead << "      p50       p90       p99     p99.9       max  #wrong\n"
                << kSubjectUnits << "     (us)      (us)      (us)      (us)      (us)\n";
      break;
    case Mode::kSteps:
      std::cout << "# steps of " << options_.gradients << ", "
                << (options_.shuffle ? "each rank in a random order of its own"
                                     : "in the order of a backward pass")
                << (options_.persistent ? ", persistent" : "") << "\n"
                << kSubjectHead << "  tensors    median       p90       min    algbw  #wrong\n"
                << kSubjectUnits << "               (ms)      (ms)      (ms)   (GB/s)\n";
      break;
  }
  std::cout << std::flush;
}

std::string Printer::wrong_text(std::size_t wrong) const {
  return options_.checks == 0 ? format("%6s", "N/A") : format("%6zu", wrong);
}

Json Printer::wrong_json(std::size_t wrong) const {
  return options_.checks == 0 ? Json() : Json(wrong);
}

Json Printer::row_base(const char* bench, const Subject& subject, const Counted& counted) const {
  Json row = {{"bench", bench},
              {"system", facts_.system},
              {"version", facts_.version},
              {"road", facts_.road},
              {"ranks", ranks_},
              {"hosts", facts_.hosts},
              {"memory", facts_.memory},
              {"inputs", options_.refill ? "refilled" : "repeated"},
              {"collective", collective_name(subject.collective)},
              {"bytes", subject.bytes},
              {"count", subject.count},
              {"type", dtype_name(subject.dtype)},
              {"redop", redop_of(subject)},
              {"root", root_of(subject)},
              {"iters", options_.iterations},
              {"warmup_iters", options_.warmups}};
  for (const auto& [name, total] : counted.totals) {
    row["counters_per_operation"][name] = total / counted.operations;
  }
  return row;
}

void Printer::finish_row(const std::string& text, const Json& row, const Counted& counted) {
  counted_.add(counted);
  std::cout << text << std::endl;
  if (json_.is_open()) json_ << row.dump() << std::endl;
}

Json Printer::figure_json(const Figure& figure) const {
  return {{"time_us", figure.time_us},
          {"algbw", figure.algbw},
          {"busbw", figure.busbw},
          {"wrong", wrong_json(figure.wrong)}};
}

void Printer::sweep_row(const Subject& subject, const Figure& out_of_place, const Figure* in_place,
                        const Counted& counted) {
  if (!prints_) return;
  Json row = row_base("sweep", subject, counted);
  row["out_of_place"] = figure_json(out_of_place);
  if (in_place != nullptr) row["in_place"] = figure_json(*in_place);
  std::string text = subject_text(subject);
  for (const Figure* figure : {&out_of_place, in_place}) {
    if (figure == nullptr) {
      text += format("  %8s %8s %8s  %6s", "N/A", "N/A", "N/A", "N/A");
      continue;
    }
    text += time_text(figure->time_us) + format("%9.2f%9.2f  ", figure->algbw, figure->busbw) +
            wrong_text(figure->wrong) + " ";
    busbws_.push_back(figure->busbw);
  }
  finish_row(text, row, counted);
}

void Printer::latency_row(const Subject& subject, const Percentiles& figure, std::size_t wrong,
                          const Counted& counted) {
  if (!prints_) return;
  Json row = row_base("latency", subject, counted);
  row.update({{"p50_us", figure.p50_us},
              {"p90_us", figure.p90_us},
              {"p99_us", figure.p99_us},
              {"p99.9_us", figure.p999_us},
              {"max_us", figure.max_us},
              {"wrong", wrong_json(wrong)}});
  std::string text = subject_text(subject);
  for (const double us :
       {figure.p50_us, figure.p90_us, figure.p99_us, figure.p999_us, figure.max_us}) {
    text += time_text(us) + " ";
  }
  finish_row(text + " " + wrong_text(wrong), row, counted);
}

void Printer::step_row(const Subject& subject, const StepFigure& figure, std::size_t wrong,
                       std::uint64_t seed, const Counted& counted) {
  if (!prints_) return;
  const double algbw = static_cast<double>(subject.bytes) / figure.median_us * 1e-3;
  Json row = row_base("gradients", subject, counted);
  row.update({{"set", options_.gradients},
              {"tensors", figure.tensors},
              {"shuffled", options_.shuffle},
              {"persistent", options_.persistent},
              {"seed", seed},
              {"median_us", figure.median_us},
              {"p90_us", figure.p90_us},
              {"min_us", figure.min_us},
              {"algbw", algbw},
              {"wrong", wrong_json(wrong)}});
  std::string text = subject_text(subject) + format("%9zu", figure.tensors);
  for (const double us : {figure.median_us, figure.p90_us, figure.min_us}) {
    text += format(" %9.3f", us * 1e-3);
  }
  text += format("%9.2f  ", algbw) + wrong_text(wrong);
  if (options_.shuffle) text += "\n# --seed " + std::to_string(seed);
  finish_row(text, row, counted);
}

void Printer::close(std::size_t wrong) {
  if (!prints_) return;
  if (!busbws_.empty()) {
    const double sum = std::accumulate(busbws_.begin(), busbws_.end(), 0.0);
    std::cout << format("# Avg bus bandwidth    : %.4f GB/s\n",
                        sum / static_cast<double>(busbws_.size()));
  }
  if (options_.counters) {
    std::cout << "# Counted per operation, on rank 0:";
    if (counted_.totals.empty()) std::cout << " nothing, this library does not count";
    for (const auto& [name, total] : counted_.totals) {
      std::cout << " " << name << " " << format("%.3f", total / counted_.operations);
    }
    std::cout << "\n";
  }
  if (options_.checks > 0) {
    std::cout << "# Wrong elements       : " << wrong << (wrong == 0 ? " OK" : " FAILED") << "\n";
  }
  std::cout << std::flush;
}

}  // namespace kolo::bench
