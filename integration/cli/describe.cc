#include "integration/cli/describe.h"

#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "integration/cli/common/exit_status.h"
#include "integration/cli/doctor/given_settings.h"
#include "integration/settings/settings.h"
#include "io/os/errno.h"

namespace spillway::integration {
namespace {

std::vector<const CLI::App*> AllSubcommands(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* sub) { return !sub->get_name().empty(); });
}

struct Option {
  std::vector<std::string> names;  // "--gpu-memory", "-h"; empty for one without a dash before it
  std::string place;               // name of one without options: "PID"
  std::string meaning;
  bool takes_value = false;
};

std::vector<Option> DescribedOptions(const CLI::App& app) {
  std::vector<Option> options;
  for (const CLI::Option* const option : app.get_options()) {
    Option found;
    for (const std::string& name : option->get_lnames()) found.names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) found.names.push_back("-" + name);
    found.place = option->get_name(/*positional=*/true);
    found.meaning = option->get_description();
    found.takes_value = option->get_expected_max() > 0;
    options.push_back(std::move(found));
  }
  return options;
}

// Returns all names of its options, separated by spaces.
std::string NamesOf(const CLI::App& app) {
  std::vector<std::string> names;
  for (const Option& option : DescribedOptions(app))
    names.insert(names.end(), option.names.begin(), option.names.end());
  return absl::StrJoin(names, " ");
}

std::string SubcommandNames(const CLI::App& app) {
  return absl::StrJoin(AllSubcommands(app), " ", [](std::string* text, const CLI::App* sub) {
    absl::StrAppend(text, sub->get_name());
  });
}

// ---- Shells.

// Completes a subcommand behind the program, and behind that options after a dash, otherwise files. Behind
// the `--` of `run` the completion is that of the command that follows.
std::string Bash(const CLI::App& app) {
  std::string text = "# bash completion of spillway; by: spillway describe bash\n_spillway() {\n";
  absl::StrAppend(&text, "  local word=${COMP_WORDS[COMP_CWORD]} i\n  if [ \"$COMP_CWORD\" -eq 1 ]; then\n",
                  "    COMPREPLY=($(compgen -W \"", SubcommandNames(app), " help ", NamesOf(app),
                  "\" -- \"$word\"))\n", "    return\n  fi\n  for ((i = 2; i < COMP_CWORD; i++)); do\n",
                  "    if [ \"${COMP_WORDS[1]}\" = run ] && [ \"${COMP_WORDS[i]}\" = -- ]; then\n",
                  "      declare -F _command_offset >/dev/null && _command_offset $((i + 1))\n      return\n "
                  "   fi\n  done\n",
                  "  case \"${COMP_WORDS[1]}\" in\n    help) COMPREPLY=($(compgen -W \"",
                  SubcommandNames(app), "\" -- \"$word\")) ;;\n");
  for (const CLI::App* const sub : AllSubcommands(app)) {
    absl::StrAppend(&text, "    ", sub->get_name(), ") [[ $word == -* ]] && COMPREPLY=($(compgen -W \"",
                    NamesOf(*sub), "\" -- \"$word\")) ;;\n");
  }
  return absl::StrCat(text, "  esac\n}\ncomplete -o default -F _spillway spillway\n");
}

// Quotes a text for the inside of a shell's single quotes.
std::string Quoted(const std::string& text) { return absl::StrReplaceAll(text, {{"'", "'\\''"}}); }
// Quotes a text for an entry of zsh's _arguments, in which brackets and colons have a meaning.
std::string ZshWords(const std::string& text) {
  return absl::StrReplaceAll(Quoted(text), {{"[", "\\["}, {"]", "\\]"}, {":", "\\:"}});
}

std::string Zsh(const CLI::App& app) {
  std::string text = "#compdef spillway\n# by: spillway describe zsh\nlocal -a subcommands\nsubcommands=(\n";
  for (const CLI::App* const sub : AllSubcommands(app))
    absl::StrAppend(&text, "  '", sub->get_name(), ":", ZshWords(sub->get_description()), "'\n");
  absl::StrAppend(
      &text,
      ")\nif ((CURRENT == 2)); then\n  _describe subcommand subcommands\n  return\nfi\ncase $words[2] in\n",
      "  help) _describe subcommand subcommands ;;\n");
  for (const CLI::App* const sub : AllSubcommands(app)) {
    absl::StrAppend(&text, "  ", sub->get_name(), ")\n    shift words; ((CURRENT--))\n    _arguments \\\n");
    for (const Option& option : DescribedOptions(*sub)) {
      for (const std::string& name : option.names)
        absl::StrAppend(&text, "      '", name, "[", ZshWords(option.meaning), "]",
                        option.takes_value ? ":value:_files" : "", "' \\\n");
    }
    absl::StrAppend(&text, "      '*:: :", sub->get_name() == "run" ? "_normal" : "_files", "'\n    ;;\n");
  }
  return absl::StrCat(text, "esac\n");
}

std::string Fish(const CLI::App& app) {
  std::string text = "# fish completion of spillway; by: spillway describe fish\n";
  const std::string none = "complete -c spillway -n __fish_use_subcommand -f -a ";
  for (const CLI::App* const sub : AllSubcommands(app)) {
    absl::StrAppend(&text, none, sub->get_name(), " -d '", Quoted(sub->get_description()), "'\n");
    for (const Option& option : DescribedOptions(*sub)) {
      if (option.names.empty()) continue;
      absl::StrAppend(&text, "complete -c spillway -n '__fish_seen_subcommand_from ", sub->get_name(), "'");
      for (const std::string& name : option.names)
        absl::StrAppend(&text, name.starts_with("--") ? " -l " : " -s ",
                        name.substr(name.find_first_not_of('-')));
      absl::StrAppend(&text, option.takes_value ? " -r" : "", " -d '", Quoted(option.meaning), "'\n");
    }
  }
  return text;
}

// ---- The man page.

// Escapes what troff would interpret.
std::string Roff(const std::string& text) {
  const std::string escaped = absl::StrReplaceAll(text, {{"\\", "\\e"}, {"-", "\\-"}});
  return escaped.starts_with('.') || escaped.starts_with('\'') ? "\\&" + escaped : escaped;
}

void AppendOptions(const CLI::App& app, std::string* text) {
  for (const Option& option : DescribedOptions(app)) {
    const std::string names = option.names.empty() ? option.place : absl::StrJoin(option.names, ", ");
    absl::StrAppend(text, ".TP\n.B ", Roff(names), "\n", Roff(option.meaning), "\n");
  }
}

std::string Man(const CLI::App& app) {
  std::string text = absl::StrCat(".\\\" by: spillway describe man\n.TH SPILLWAY 1 \"\" \"Spillway ",
                                  SPILLWAY_VERSION_TEXT, "\"\n.ad l\n.SH NAME\nspillway \\- ",
                                  Roff("train models larger than the GPU's memory, unchanged"),
                                  "\n.SH SYNOPSIS\n.B spillway\n.I SUBCOMMAND\n[options]\n.SH OPTIONS\n");
  AppendOptions(app, &text);
  for (const CLI::App* const sub : AllSubcommands(app)) {
    absl::StrAppend(&text, ".SH SPILLWAY ", Roff(absl::AsciiStrToUpper(sub->get_name())), "\n",
                    Roff(sub->get_description()), "\n");
    AppendOptions(*sub, &text);
  }
  return absl::StrCat(text, ".SH ENVIRONMENT\nEach option of\n.B spillway run\nis a variable, too: ",
                      Roff("--gpu-memory"), " is SPILLWAY_GPU_MEMORY.\n");
}

// Returns an empty text for an unknown form.
std::string DescriptionOf(const CLI::App& app, const std::string& form) {
  if (form == "bash") return Bash(app);
  if (form == "zsh") return Zsh(app);
  if (form == "fish") return Fish(app);
  return form == "man" ? Man(app) : "";
}

// Returns what is set in this shell, with its origin, as a job that starts here would find it.
absl::StatusOr<std::string> SettingsText() {
  const std::map<std::string, std::string> no_options;
  const GivenSettings given = CollectSettings(no_options);
  SPILLWAY_RETURN_IF_ERROR(CheckConf(given));
  const SettingSource source = SourceOf(given, no_options);
  std::vector<std::string> warnings;
  SPILLWAY_RETURN_IF_ERROR(ReadSettings(source, &warnings).status());
  std::string text;
  for (const std::string& line : OriginLines(OriginsOf(source))) absl::StrAppend(&text, line, "\n");
  for (const std::string& warning : warnings) absl::StrAppend(&text, "warning: ", warning, "\n");
  return text.empty() ? "all settings have their defaults\n" : text;
}

}  // namespace

CLI::App* AddDescribe(CLI::App* app, DescribeOptions* options) {
  CLI::App* const command = app->add_subcommand(
      "describe",
      "Print this command line for a shell's completion, or as a man page; or the settings in force");
  command->add_option("FORM", options->form, "bash, zsh, fish, man or settings")->required();
  return command;
}

int Describe(const CLI::App& app, const DescribeOptions& options) {
  if (options.form == "settings") {
    const absl::StatusOr<std::string> settings = SettingsText();
    if (!settings.ok()) return Refuse(settings.status());
    std::fputs(settings->c_str(), stdout);
    return 0;
  }
  const std::string text = DescriptionOf(app, options.form);
  if (text.empty())
    return Refuse(absl::InvalidArgumentError(absl::StrCat(
        "describe ", options.form, " is invalid; expected: bash, zsh, fish, man or settings")));
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace spillway::integration
