"""What may be private stands in no log, and two runs that differ in it are still told apart."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from capture import machine, privacy
from capture.log_format import PRIVATE, private
from capture.privacy import shown_command, shown_value, without_private
from matchers.ops.run_info import compare_run_info
from tests.capture.conftest import HEAD, LOOP
from tests.capture.logs import read_logs
from tests.capture.runs import run_python
from tests.forks import Forks

S = "{}"
"""Where the secret stands in a command line."""
COMMANDS = [
    ["--pw", S],
    ["--wandb-key", S],
    [f"--wandb-key={S}"],
    ["--header", f"Authorization: Bearer {S}"],
    ["-H", f"X-Api: {S}"],
    ["--dsn", f"host=h password={S}"],
    [f"--dsn=host=h password={S}"],
    ["--config", f'{{"token": "{S}", "lr": 0.1}}'],
    [f"--config={{'a': {{'b': '{S}'}}}}"],
    ["--db", f"mysql://u:{S}@ss@h/db"],
    [f"https://user:{S}@example.org/data"],
    [f"https://example.org/x?token={S}&y=1"],
    [f"s3://bucket/{S}/x"],
    ["--tokens", "X", S],
    ["--tokens", S, "1"],
    [f"WANDB_API_KEY={S}"],
    [f"KEY={S}"],
    [f"--opt={S}"],
    ["--opt", S],
    [f"-p{S}"],
    [f"-p={S}"],
    [f"-D{S}=1"],
    ["-p", S],
    [f"db.password={S}"],
    [f"+trainer.logger.name={S}"],
    [f"++x={S}"],
    [f"~x.y={S}"],
    ["--cmd", f'curl -H "Authorization: \'Bearer {S}\'" -d \'{{"a": "b"}}\''],
    [f"--set=a.b={S}"],
    ["--set", f"a=[1,{S}]"],
    ["--list", f"1,2,{S}"],
    ["--quoted", f"'{S}'"],
    ["--path", f"/no/such/folder/{S}"],
    ["--flag", f"{S}=="],
    [f"{S}=="],
    ["--user", f"u:{S}"],
    ["-c", f"import os; os.environ['A'] = '{S}'"],
    ["--", S],
    [S],
    [f"--pem=-----BEGIN KEY-----\n{S}\n-----END KEY-----"],
    [f"@{S}"],
    ["--unicode", f"pässwörd {S}"],
    ["--password", f"-{S}"],
]
SECRETS = [
    "hf_abcdefghijklmnopqrstuvwxyz",
    "sk-proj-Ab12Cd34Ef56Gh78",
    "AKIAIOSFODNN7EXAMPLE",
    "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "eyJhbGciOi.eyJzdWIiOi.SflKxwRJSM",
    "c2VjcmV0IHNlY3JldA==",
    "0123456789abcdef0123456789abcdef01234567",
    "hunter2hunter",
    "correct horse battery",
    "xoxb-123456789-abcdefgh",
    "9f86d081-884c-7d65-9a2f-eaa0c55ad015",
    "10.20.30.40:8080",
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_secret_of_a_command_line_is_written_and_another_one_is_noticed(command: list[str]) -> None:
    for secret, other in zip(SECRETS, SECRETS[1:] + SECRETS[:1], strict=True):
        start = ["python", "train.py", "--lr", "1e-3"]
        a, b = (shown_command([*start, *(word.replace(S, of) for word in command)]) for of in (secret, other))
        assert secret not in " ".join(a)
        assert all(part not in " ".join(a) for part in secret.rstrip("=").split())
        assert a != b
        notes = compare_run_info({"command": a}, {"command": b}, draws=False)
        assert [note.kind for note in notes] == ["command"]
        assert secret not in notes[0].text
        assert PRIVATE.pattern.partition(":")[0] not in notes[0].text, "a digest is for programs"


@pytest.mark.parametrize(
    "secret", [*SECRETS, "u:p@ss", "token=abc", '{"a": "b"}', "Bearer x", "-----BEGIN", "secrets.x"]
)
@pytest.mark.parametrize("name", ["TORCH_LABEL", "NCCL_EXTRA", "CUDA_X", "PYTORCH_NOTE"])
def test_no_secret_of_an_innocent_variable_is_written(monkeypatch: pytest.MonkeyPatch, name: str, secret: str) -> None:
    def environment(value: str) -> dict[str, str]:
        monkeypatch.setenv(name, value)
        return machine.environment()

    a, b = environment(secret), environment(secret + "2")
    assert PRIVATE.fullmatch(a[name])
    (note,) = compare_run_info({"environment": a}, {"environment": b}, draws=False)
    assert note.text == f"environment variable {name} differs (kept private)"


@pytest.mark.parametrize(
    "words",
    [
        *(["--lr", "1e-3"], ["--lr=1e-3"], ["-lr", "0.1"], ["--steps", "1,2,5-7"], ["--shape", "2x4"], ["--x", "-1"]),
        *(["--x", "-inf"], ["--memory", "16GB"], ["--x", "[1, 2.5]"], ["--x=True"], ["--x", "none"], ["--x", "auto"]),
        *(["model.lr=0.1"], ["+a.b=[0,1]"], ["++a/b=null"], ["--set=a.b=1"], ["--max-tokens", "5"], ["--seed", "0x1f"]),
        *(
            ["-m", "capture.launch", "--x"],
            ["-mcapture.launch"],
            ["-m", "json"],
            ["--hash", "capture.privacy:shown_value"],
        ),
        *(
            ["--optimizer", "AdamW"],
            ["--optimizer", "torch.optim.AdamW"],
            ["--dtype", "torch.bfloat16"],
            ["-u"],
            ["--"],
        ),
        *(["--device", "cuda:0"], ["--backend", "cpu:gloo,cuda:nccl"], ["--dtype", "bf16"], ["--compile", "inductor"]),
        *(["--data", "."], ["--data", os.path.abspath(__file__)], [f"data={__file__}"], ["--num_key_value_heads", "8"]),
        *(["--adam-beta1", "0.9"], ["--k8s"], ["--2", "-"]),
    ],
    ids=" ".join,
)
def test_what_two_runs_are_compared_by_is_in_clear(words: list[str]) -> None:
    shown = shown_command(["python", *words])
    assert shown == ["python", *words] or words == ["--2", "-"], "a name begins with a letter"


@pytest.mark.parametrize(
    "start",
    ["python -u -m capture", "python -m numtui.capture", "python /x/bin/numtui capture", "python -m numtui capture"],
)
def test_the_options_of_the_capture_are_settings(start: str) -> None:
    own = [*start.split(), "-o", "not/yet/there", "--ops", "mm*", "--"]
    assert shown_command([*own, "train.py", "--tag", "x"]) == [*own, "train.py", "--tag", private("x")]
    assert shown_command([*own, "-m", "json", "x"]) == [*own, "-m", "json", private("x")]
    # not the capture's, whatever a script's own options are
    for other in ("python -m json -m capture", "python x.py -m capture", "python x.py numtui capture", "python"):
        assert shown_command([*other.split(), "secret", "--", "x"])[-3] == private("secret")


def test_of_a_password_not_even_a_number_is_written() -> None:
    for words in (["--pw", "1234"], ["--pw=1234"], ["db.password=1234"], ["DB_PW=1234"], ["--passwords", "0", "1234"]):
        assert "1234" not in " ".join(shown_command(["python", *words]))
    assert shown_command(["python", "--auth", "--lr", "1", "--pw=2", "3"])[1:4] == ["--auth", "--lr", "1"]
    assert shown_value("TORCH_API_KEY", "1") == private("1")
    assert shown_command(["python", "--pw", "json", "--pw", "."]) == [
        "python",
        "--pw",
        private("json"),
        "--pw",
        private("."),
    ]


def test_a_path_is_in_clear_where_it_exists_and_names_no_credential(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "epoch=1.pt").touch()
    (tmp_path / "u:p@h").touch()
    (tmp_path / "sk-abcdefghijklmnopqrstu").touch()
    assert shown_command(["python", str(tmp_path / "epoch=1.pt")])[1] == str(tmp_path / "epoch=1.pt")
    for name in ("epoch=2.pt", "u:p@h", "sk-abcdefghijklmnopqrstu"):
        assert PRIVATE.search(shown_value("--data", str(tmp_path / name)))
    monkeypatch.setenv("PWD", str(tmp_path))
    assert shown_value("--data", "epoch=1.pt") == "epoch=1.pt", "the script has left the folder it was started in"


def test_a_module_is_found_and_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "a_trainer_of_ours"
    package.mkdir()
    (package / "run.py").write_text("raise SystemExit")  # a namespace package
    monkeypatch.syspath_prepend(str(tmp_path))
    assert shown_value("-m", "a_trainer_of_ours.run", module=True) == "a_trainer_of_ours.run"
    assert PRIVATE.match(shown_value("-m", "a_trainer_of_ours.walk", module=True))
    assert PRIVATE.match(shown_value("--x", "os.no_such_thing"))
    assert PRIVATE.match(shown_value("--x", "json")), "a word of every day"
    assert "a_trainer_of_ours" not in sys.modules


def test_a_digest_is_short_ascii_and_any_text_has_one() -> None:
    assert PRIVATE.fullmatch(private("x"))
    assert private("x") == private("x") != private("y")
    for text in ("", "\udc80", "\ud800", "ä\n", "x" * 100_000):
        assert PRIVATE.fullmatch(private(text))
    assert PRIVATE.fullmatch(shown_value("--x", "1," * 1000)), "nor is a text of any length in clear"


def test_exceptions_quote_nothing_private(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        sys, "orig_argv", ["python", "train.py", "--tag=hunter22", "--lr", "0.12345", "--db", "u:it's me2u9"]
    )
    monkeypatch.setenv("SOME_NAME", "in the environment")
    monkeypatch.setenv("USER", "somebody")
    monkeypatch.setenv("HOME", "/home/somebody")
    for text in ("0.12345", "at /home/somebody/x.py", "hunter is not all of it", "nothing of it"):
        assert without_private(f"ValueError: {text}") == f"ValueError: {text}"
    for text in ("hunter22", "is in the environment:", str(sys.orig_argv), "password 'it\\'s me2u9' refused"):
        assert without_private(f"ValueError: {text}") == f"ValueError: {private(text)}"
    assert without_private("hunter22") == "hunter22", "no exception, but what the capture says"


def test_captured_logs_hold_no_secret_and_their_comparison_says_that_it_differs(forked: Forks, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(HEAD + LOOP + "import sys\nmodel(x).sum()\nraise ValueError(sys.argv)")
    secrets = [f"{k}{SECRETS[k % len(SECRETS)]}" for k in range(len(COMMANDS))]

    def capture(folder: str, secrets: list[str], rate: str) -> None:
        words = [word.replace(S, of) for command, of in zip(COMMANDS, secrets, strict=True) for word in command]
        variables = {f"TORCH_ANY_{k}": f"in a variable {of}" for k, of in enumerate(secrets)}
        options = f"-m capture -o {folder} --steps 1,4 --weights 1 -- script.py --lr {rate}"
        forked([*options.split(), *words], tmp_path, variables)

    capture("a", secrets, "1e-3")
    capture("b", ["other" + secrets[0], *secrets[1:-2], "other" + secrets[-2], secrets[-1]], "1e-4")
    logs = [path for path in tmp_path.rglob("*.log") if path.is_file()]
    assert len(logs) == 6, "steps 1 and 4, of which the last is incomplete, and weights, twice"
    for path in logs:
        text = path.read_bytes()
        assert b'"script.py", "--lr", "1e-' in text
        assert b"TORCH_ANY_40" in text
        assert not [secret for secret in [*SECRETS, *secrets] if secret.encode() in text]
    last = read_logs(tmp_path / "a")["step_4/rank_0_activations.log"].run["incomplete"]
    assert PRIVATE.fullmatch(last.removeprefix("ValueError: ")), "the script's message had its arguments"

    steps = [str(tmp_path / side / "numerics" / "step_1") for side in "ab"]
    report = run_python(["-m", "numtui", "diff", *steps], tmp_path).stdout
    assert "the command lines differ: 1e-3 only in a, 1e-4 only in b" in report
    assert "the values of --pw, --unicode differ (kept private)" in report
    assert "environment variable TORCH_ANY_0 differs (kept private)" in report
    assert "TORCH_ANY_1 " not in report
    assert not [secret for secret in [*SECRETS, *secrets] if secret in report]


def test_the_list_of_words_is_short() -> None:
    """Each is a password that would stand in clear."""
    assert len(privacy._WORDS) < 200
    assert all(word == word.lower() for word in privacy._WORDS)
