#include "integration/escape/deny_list.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace spillway::integration {
namespace {

constexpr std::string_view kAccepted =
    "expected: a kernel's name as the driver gives it (mangled, without blanks); optionally the file name "
    "of its library; in both a * stands for any text; optionally action=everything, action=writer or "
    "action=refuse; for a writer tables=LIST or fills=LIST, the numbers of the parameters that point to "
    "its tables, as in 5,7-9";

constexpr bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

// Cuts the next word off the front of `rest` and returns it; empty at the end of the line or at a comment.
std::string_view TakeWord(std::string_view* rest) {
  const size_t start = std::find_if_not(rest->begin(), rest->end(), IsBlank) - rest->begin();
  rest->remove_prefix(start);
  if (rest->starts_with('#')) *rest = {};
  const size_t end = std::find_if(rest->begin(), rest->end(), IsBlank) - rest->begin();
  const std::string_view word = rest->substr(0, end);
  rest->remove_prefix(end);
  return word;
}

// Returns what is wrong with a pattern; empty if nothing is.
std::string FaultOf(std::string_view pattern) {
  for (const char c : pattern) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return "contains a control character";
  }
  if (pattern.find('/') != std::string_view::npos) return "contains a /";
  return "";
}

// Matches the pattern piece by piece between the stars. Each piece is matched at its first occurrence, since
// a later one would leave less text for the pieces behind it.
bool Matches(std::string_view pattern, std::string_view text) {
  const size_t first = pattern.find('*');
  if (first == std::string_view::npos) return pattern == text;
  if (!text.starts_with(pattern.substr(0, first))) return false;
  text.remove_prefix(first);
  pattern.remove_prefix(first + 1);
  for (size_t star = pattern.find('*'); star != std::string_view::npos; star = pattern.find('*')) {
    const size_t at = text.find(pattern.substr(0, star));
    if (at == std::string_view::npos) return false;
    text.remove_prefix(at + star);
    pattern.remove_prefix(star + 1);
  }
  return text.ends_with(pattern);
}

// Returns the beginning of a word, in quotation marks, for a message: names of kernels may be long.
std::string Quoted(std::string_view word) {
  constexpr size_t kShown = 80;
  return "\"" + std::string(word.substr(0, kShown)) + (word.size() > kShown ? "...\"" : "\"");
}

// Cuts a parameter's number off the front of `text`. Returns false if there is none, or none that a kernel
// may have.
bool TakeNumber(std::string_view* text, uint32_t* number) {
  constexpr uint32_t kMaxParameters = 4096;
  const char* const end = text->data() + text->size();
  const auto [rest, error] = std::from_chars(text->data(), end, *number);
  if (error != std::errc() || *number >= kMaxParameters) return false;
  text->remove_prefix(static_cast<size_t>(rest - text->data()));
  return true;
}

// Reads a list like "5,7-9". Returns false if `text` is no such list.
bool ReadNumbers(std::string_view text, std::vector<uint32_t>* numbers) {
  for (;;) {
    uint32_t first = 0;
    if (!TakeNumber(&text, &first)) return false;
    uint32_t last = first;
    if (text.starts_with('-')) {
      text.remove_prefix(1);
      if (!TakeNumber(&text, &last)) return false;
    }
    if (last < first || (!numbers->empty() && first <= numbers->back())) return false;
    for (uint32_t number = first; number <= last; ++number) numbers->push_back(number);
    if (text.empty()) return true;
    if (!text.starts_with(',')) return false;
    text.remove_prefix(1);
  }
}

bool ReadAction(std::string_view text, DenyList::Action* action) {
  if (text == "everything") {
    *action = DenyList::Action::kEverything;
  } else if (text == "writer") {
    *action = DenyList::Action::kWriter;
  } else if (text == "refuse") {
    *action = DenyList::Action::kRefuse;
  } else {
    return false;
  }
  return true;
}

// Reads one `KEY=VALUE`. Returns what is wrong with it; empty if nothing is.
std::string ReadOption(std::string_view word, DenyList::Entry* row) {
  const size_t split = word.find('=');
  const std::string_view key = word.substr(0, split);
  const std::string_view value = word.substr(split + 1);
  if (key == "action") return ReadAction(value, &row->action) ? "" : "no such action, " + Quoted(value);
  if (key != "tables" && key != "fills") return "no such key, " + Quoted(word);
  if (!row->tables.empty()) return "the tables a second time, " + Quoted(word);
  if (!ReadNumbers(value, &row->tables)) return Quoted(value) + " is not a list of parameters";
  row->fills = key == "fills";
  return "";
}

// Reads the words behind the name. Returns what is wrong with the line; empty if nothing is.
std::string ReadRow(std::string_view name, std::string_view rest, DenyList::Entry* row) {
  if (const std::string fault = FaultOf(name); !fault.empty()) return Quoted(name) + " " + fault;
  for (std::string_view word = TakeWord(&rest); !word.empty(); word = TakeWord(&rest)) {
    if (word.find('=') != std::string_view::npos) {
      if (const std::string fault = ReadOption(word, row); !fault.empty()) return fault;
      continue;
    }
    if (!row->library.empty()) return "a second library, " + Quoted(word);
    if (const std::string fault = FaultOf(word); !fault.empty()) return Quoted(word) + " " + fault;
    row->library = word;
  }
  if (!row->tables.empty() && row->action != DenyList::Action::kWriter) return "tables without action=writer";
  return "";
}

}  // namespace

absl::Status DenyList::Add(std::string_view text, const std::string& file) {
  for (size_t line = 1; !text.empty(); ++line) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view rest = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::string_view name = TakeWord(&rest);
    if (name.empty()) continue;
    Entry entry;
    entry.name = name;
    entry.origin = file + ":" + std::to_string(line);
    if (const std::string fault = ReadRow(name, rest, &entry); !fault.empty())
      return absl::InvalidArgumentError(entry.origin + ": " + fault + "; " + std::string(kAccepted));
    names_libraries_ |= !entry.library.empty();
    entries_.push_back(std::move(entry));
  }
  return absl::OkStatus();
}

std::string_view DenyList::Shipped() {
  // Each row is confirmed by tests/cubins, or names its source. docs/audit.md says what a row costs.
  static constexpr std::string_view kText = R"(
# Writers of the pointer tables of grouped GEMMs. The GEMM that follows finds its matrices there.
# torch._grouped_mm, torch._scaled_grouped_mm: PyTorch 2.11 and 2.15, all groups by one launch
_ZN2at4cuda6detail25prepare_grouped_gemm_data*  action=writer fills=5-9
# MSLK's low-precision grouped GEMMs: PyTorch 2.11 and 2.15
_ZN4mslk4gemm28set_grouped_gemm_args_kernel*    action=writer tables=6,8,10,13,15,25
_ZN4mslk4gemm30set_stacked_kernel_args_kernel*  action=writer tables=5,7,9,11,13,21
# torch.arange, by which batched torch.linalg (cholesky, solve, inv, lu_factor) writes the addresses of its matrices
_ZN*_RangeFactories_cu_*elementwise_kernel_with_index*arange_cuda_out*  action=writer fills=2
# torch.linalg.lu_factor on batches by cuBLAS: PyTorch 2.15, a thread for each matrix writes both tables of the solve
_ZN2at6native*_LURecBlas3Kernel_cu_*build_trsm_ptr_kernel*  action=writer fills=4,5
# Writers in libraries whose licence forbids reading, by the types in their names alone (tests/cubins/closed.py): each is
# given tables to write, and addresses of what the entries lead to. cuBLASLt, cuDNN, cuSPARSELt: one base and a stride
_ZN*12fillPtrArrayEPPvS0_mm                  action=writer fills=0
# cuBLASLt 13.4: floating-point products put together from integer ones
_ZN17cublasLt_imma_emu19set_device_ptrs_ker* action=writer fills=3-5
# cuDNN: batched products; from 9.26 on grouped ones of mixtures of experts
_Z24setBatchedGemmPtrsKernel*                action=writer fills=1,4,7
_ZN5cudnn19engines_precompiled42prepare_moe_grouped_gemm_fwd_arrays_kernel*  action=writer fills=29-36
_ZN5cudnn19engines_precompiled42prepare_moe_grouped_gemm_bwd_arrays_kernel*  action=writer fills=23-28
# cuSPARSE
_ZN8cusparse11update_ptrs*                   action=writer fills=18-20
# cuSOLVER: lists of blocks of a matrix, and a sparse LU on batches. Whether one launch writes a list whole, no name says
_ZN6kernel23init_X_diag_blocks_list*         action=writer tables=4
_ZN6kernel27init_triangular_blocks_list*     action=writer tables=5
_ZN6kernel23init_scales_blocks_list*         action=writer tables=4
_ZN6kernel26init_iscomplex_blocks_list*      action=writer tables=3
_Z24iglubatch_setup_pointers*                action=writer tables=4
# MAGMA's batched kernels (lu_factor, lu_solve, cholesky_solve): their tables lie in pinned memory, or kernels that name no
# matrix have made them of other tables. PyTorch 2.11: 1,272 of the 1,274 followers of that library
*batched*                libtorch_cuda_linalg.so  action=everything
_Z*stepinit_ipiv_kernel* libtorch_cuda_linalg.so  action=everything
)";
  return kText;
}

const DenyList::Entry* DenyList::Match(std::string_view name, std::string_view library) const {
  for (const Entry& entry : entries_) {
    if (!Matches(entry.name, name)) continue;
    if (entry.library.empty() || (!library.empty() && Matches(entry.library, library))) return &entry;
  }
  return nullptr;
}

std::string DenyListLine(std::string_view name, std::string_view library, std::string_view comment) {
  std::string line(name);
  if (!library.empty()) line += " " + std::string(library);
  if (!comment.empty()) line += "  # " + std::string(comment);
  return line + "\n";
}

}  // namespace spillway::integration
