"""The page at "/" in a browser: with the real server, and with a scripted one for what goes wrong."""

import decimal
import json
import os
import pathlib
import re
import threading
import urllib.parse
import urllib.request

import pytest
from playwright.sync_api import expect, sync_playwright

import serving
from conftest import is_idle, metric, wait_for
from fake_server import PAGE, FakeServer

# A busy machine's browser may take longer than the five seconds that are usual.
expect.set_options(timeout=60000)
VIEWS = {"desktop": (1280, 860), "phone": (360, 740)}
SCHEMES = ["light", "dark"]
QUOTE = ("Repeat this text word for word: The ferry leaves the north quay every forty minutes. On "
         "market days a second ferry is put on between nine and noon. The last ferry waits for the "
         "evening train.")

# What WCAG 2 calls contrast, of every element with a text of its own.
CONTRAST = """() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((v) => v / 255)
      .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = (element) => {
    for (; element; element = element.parentElement) {
      const color = parse(getComputedStyle(element).backgroundColor);
      if (color.length < 4 || color[3] > 0) return color;
    }
    return [255, 255, 255];
  };
  let worst = [99, ""];
  for (const element of document.body.querySelectorAll("*")) {
    const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    if (!own || !element.checkVisibility() || element.disabled) continue;
    const [a, b] = [light(parse(getComputedStyle(element).color)), light(behind(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < worst[0]) worst = [ratio, `${element.tagName}.${element.className}`];
  }
  return worst;
}"""

NAMELESS = """() => [...document.querySelectorAll("button, input, select, textarea, [role=button]")]
  .filter((e) => !(e.labels?.length || e.textContent.trim() || e.ariaLabel))
  .map((e) => e.outerHTML)"""


@pytest.fixture(scope="module")
def browser(request):
    path = request.config.getoption("--browser")
    if not path:
        pytest.skip("there is no Chromium: name one with --browser")
    with sync_playwright() as playwright:
        # As root, Chromium has no sandbox.
        flags = ["--no-sandbox"] if os.getuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=path, args=flags)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser):
    """open_page(URL, ...): the page, which must neither complain nor ask another host."""
    contexts, complaints, hosts = [], [], {}

    def one(url, view="desktop", **settings):
        width, height = VIEWS[view]
        context = browser.new_context(viewport={"width": width, "height": height}, **settings)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60000)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda message: complaints.append(message.text)
                if message.type == "error" and "Failed to load resource" not in message.text
                else None)
        page.on("request", lambda request: hosts.setdefault(
            urllib.parse.urlsplit(request.url).netloc, request.url))
        page.goto(url + "/")
        hosts.pop(urllib.parse.urlsplit(url).netloc, None)
        page.own_host = urllib.parse.urlsplit(url).netloc
        return page

    yield one
    own = {page.own_host for context in contexts for page in context.pages}
    for context in contexts:
        context.close()
    assert not complaints
    assert set(hosts) <= own, hosts


@pytest.fixture
def fake():
    servers = []

    def one(**settings):
        server = FakeServer(**settings)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return server

    yield one
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def screenshot(request):
    folder = pathlib.Path(request.config.getoption("--screenshots"))
    folder.mkdir(parents=True, exist_ok=True)
    return lambda page, name: page.screenshot(path=folder / f"{name}.png")


def send(page, text):
    page.fill("#prompt", text)
    page.keyboard.press("Enter")


def finished(page):
    expect(page.locator("#send")).to_be_visible(timeout=120000)


def setting(page, name, value):
    page.evaluate("document.getElementById('settings').open = true")
    field = page.locator(f"#{name}")
    if field.evaluate("e => e.tagName") == "SELECT":
        field.select_option(value)
    else:
        field.fill(value)


def looks_well(page, screenshot, name):
    """In both colours: nothing is too wide, and all can be read."""
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        screenshot(page, f"{name}_{scheme}")
        assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]
        ratio, where = page.evaluate(CONTRAST)
        assert ratio >= 4.5, (scheme, where)


def texts(page):
    return [page.locator(".reply .text").nth(i).text_content()
            for i in range(page.locator(".reply .text").count())]


# ---- With the real server ----


def test_policy_is_strict(server):
    for path in ("/", *(f"/{file.name}" for file in PAGE.glob("*.[jc]s*"))):
        with urllib.request.urlopen(server.url + path) as response:
            policy = response.headers["Content-Security-Policy"]
            assert "default-src 'self'" in policy and "unsafe" not in policy
            assert response.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("view", list(VIEWS))
def test_streams_in_colours_and_compares(server, model, open_page, screenshot, view):
    page = open_page(server.url, view)
    expect(page.locator("#model")).to_have_text(model)
    looks_well(page, screenshot, f"page_{view}_empty")
    setting(page, "temperature", "0")
    setting(page, "max-tokens", "80")
    if view == "phone":
        page.evaluate("document.getElementById('settings').open = false")
    page.check("#compare")
    send(page, QUOTE)
    finished(page)
    expect(page.locator(".verdict")).to_contain_text("Same text, token for token")
    assert page.locator(".reply .token.accepted").count() > 3
    own, plain = texts(page)
    assert own == plain and len(own) > 40
    assert page.locator(".reply").nth(1).locator(".token:not(.target)").count() == 0
    page.evaluate("document.getElementById('figures').open = true")
    assert float(page.locator("#tau").text_content()) > 1
    assert float(page.locator("#speed").text_content()) > 0
    assert page.locator("#depths li").count() >= 1
    page.locator(".round", has=page.locator(".accepted")).first.click()
    expect(page.locator(".draft .chip.accepted").first).to_be_visible()
    looks_well(page, screenshot, f"page_{view}")


def test_without_drafts_to_be_seen(start, open_page):
    server = start("--no-allow-trace")
    page = open_page(server.url)
    setting(page, "temperature", "0")
    setting(page, "max-tokens", "40")
    page.check("#compare")
    send(page, QUOTE)
    finished(page)
    expect(page.locator(".verdict")).to_contain_text("Same text, token for token")
    assert len(texts(page)[0]) > 40
    assert page.locator(".reply .token").count() == 0
    page.evaluate("document.getElementById('figures').open = true")
    expect(page.locator("#no-trace")).to_contain_text("--allow-trace")
    server.stop()


def test_conversation_and_completion(server, open_page):
    page = open_page(server.url)
    setting(page, "max-tokens", "16")
    setting(page, "seed", "5")
    setting(page, "system", "You are brief.")
    requests = []
    page.on("request", lambda r: requests.append(r.post_data_json) if r.method == "POST" else None)
    for text in ("Name a river.", "And another."):
        send(page, text)
        finished(page)
    roles = [message["role"] for message in requests[1]["messages"]]
    assert roles == ["system", "user", "assistant", "user"]
    assert requests[1]["messages"][2]["content"] == texts(page)[0]
    assert requests[1]["seed"] == 5 and "speculation" not in requests[1]
    page.click("#reset")
    assert page.locator(".reply").count() == 0
    page.check("input[value=completions]", force=True)
    setting(page, "speculation", "off")
    send(page, "Once upon a time")
    finished(page)
    assert requests[2]["prompt"] == "Once upon a time" and requests[2]["speculation"] == "off"
    assert page.locator(".reply .token:not(.target)").count() == 0


def test_stops(server, open_page):
    page = open_page(server.url)
    # Replies that do not end by themselves.
    page.route("**/v1/chat/completions", lambda route: route.continue_(
        post_data=json.dumps({**route.request.post_data_json, "ignore_eos": True})))
    setting(page, "max-tokens", "6000")
    setting(page, "speculation", "off")
    send(page, "Tell me a very long story about the sea.")
    expect(page.locator(".reply .token").nth(3)).to_be_visible()
    page.click("#stop")
    finished(page)
    expect(page.locator(".reply .meta")).to_contain_text("stopped")
    send(page, "And now?")
    expect(page.locator(".reply").nth(1).locator(".token").nth(2)).to_be_visible()
    page.keyboard.press("Escape")
    finished(page)


def test_says_what_the_server_refuses(server, open_page):
    page = open_page(server.url)
    setting(page, "max-tokens", "1000000")
    send(page, "Hello " * 9000)
    finished(page)
    expect(page.locator(".error[role=alert]")).to_contain_text("HTTP status 400")
    assert page.input_value("#prompt").startswith("Hello")  # to be changed


# ---- With the scripted one ----


def test_tree_by_keyboard(fake, open_page):
    page = open_page(fake().url)
    send(page, "a question")
    finished(page)
    page.focus("#prompt")
    for _ in range(60):
        page.keyboard.press("Shift+Tab")
        if page.evaluate("document.activeElement.className") == "round":
            break
    round_text = page.evaluate("document.activeElement.textContent")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.textContent") != round_text
    page.keyboard.press("Enter")
    expect(page.locator(".draft li").first).to_be_visible()
    focused = page.locator(".round:focus")
    expect(focused).to_have_attribute("aria-expanded", "true")
    chips = page.locator(".draft .chip.accepted").count()
    assert chips == focused.locator(".token.accepted").count()
    summary = page.locator(".draft .head span").text_content()
    page.keyboard.press("End")
    assert page.locator(".draft").count() == 1
    page.keyboard.press("Home")
    assert page.locator(".draft .head span").text_content() != summary
    page.keyboard.press("Escape")
    assert page.locator(".draft").count() == 0


def test_probabilities_and_origins_are_shown(fake, open_page):
    page = open_page(fake().url)
    send(page, "a question")
    finished(page)
    for kind in ("accepted", "correction", "bonus"):
        wanted = page.locator(".round", has=page.locator(f".token.{kind}")).first
        if wanted.get_attribute("aria-expanded") == "false":
            wanted.click()
        expect(page.locator(f".draft .chip.{kind}").first).to_be_visible()
    expect(page.locator(".draft .chip small").first).to_contain_text("%")


def test_text_is_the_servers_own(fake, open_page):
    page = open_page(fake().url)
    send(page, "a question")
    finished(page)
    send(page, "split it")
    finished(page)
    whole, split = texts(page)
    assert whole == split


def test_thoughts_are_no_part_of_the_answer(fake, open_page):
    server = fake()
    page = open_page(server.url)
    send(page, "think first")
    finished(page)
    thought = "".join(page.locator(".reply .thought").all_text_contents())
    assert thought and texts(page)[0].startswith(thought + "\n\n")
    send(page, "and now")
    finished(page)
    said = server.requests[-1]["messages"][1]["content"]
    assert said and thought not in said and texts(page)[0] == thought + "\n\n" + said


def test_says_where_texts_differ(fake, open_page):
    page = open_page(fake().url)
    page.check("#compare")
    send(page, "differ please")
    finished(page)
    expect(page.locator(".verdict.differs")).to_contain_text("differ from token")


@pytest.mark.parametrize("prompt,message", [
    ("refuse", "max_tokens is too large: this model's context holds 2048 tokens. (HTTP status 400)"),
    ("break", "The model failed: out of memory."),
    ("drop", "The connection ended before the reply did."),
])
def test_failures_are_shown(fake, open_page, prompt, message):
    page = open_page(fake().url)
    send(page, prompt)
    finished(page)
    expect(page.locator(".error[role=alert]")).to_have_text(message)
    assert page.input_value("#prompt") == prompt
    send(page, "a question")
    finished(page)
    assert page.locator(".error").count() == 1


def test_server_that_is_gone(fake, open_page):
    page = open_page(fake().url)
    page.context.set_offline(True)
    send(page, "a question")
    finished(page)
    expect(page.locator(".error")).to_have_text("The server cannot be reached.")


def test_api_key(fake, open_page):
    server = fake(key="a-secret")
    page = open_page(server.url)
    expect(page.locator("#model")).to_contain_text("API key")
    send(page, "a question")
    finished(page)
    expect(page.locator(".error")).to_contain_text("Settings")
    page.fill("#api-key", "a-secret")
    page.locator("#api-key").blur()
    expect(page.locator("#model")).to_have_text("fake-model")
    page.click("#send")
    finished(page)
    assert page.locator(".reply .token").count() > 10
    stored = page.evaluate("[localStorage.length, sessionStorage.length, document.cookie]")
    assert stored == [0, 0, ""]


def test_speaks_and_holds_still(fake, open_page):
    server = fake(pause=0.03)
    page = open_page(server.url, reduced_motion="reduce")
    server.goes_on.clear()
    page.evaluate("""() => {
      window.heard = [];
      const status = document.getElementById("announce");
      new MutationObserver(() => heard.push(status.textContent))
        .observe(status, {childList: true});
    }""")
    send(page, "a question")
    expect(page.locator(".writing")).to_be_visible()
    assert page.evaluate(
        "getComputedStyle(document.querySelector('.writing .text'), '::after').animationName"
    ) == "none"
    server.goes_on.set()
    finished(page)
    heard = page.evaluate("heard")
    assert 2 <= len(heard) <= 8  # sentences, not tokens
    said = " ".join(" ".join(heard).split())
    assert said == " ".join(texts(page)[0].split())


def test_everything_has_a_name(fake, open_page):
    page = open_page(fake().url)
    send(page, "a question")
    finished(page)
    assert page.evaluate(NAMELESS) == []


# ---- The view for operators ----

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def operated(start, tmp_path_factory):
    """A server that takes orders and compares, whose model and class of traffic have names of HTML."""
    key = tmp_path_factory.mktemp("keys") / "admin.key"
    key.write_text("order\n")
    server = start("--admin-key-file", str(key), "--holdback", "0.5", "--speculate", "ngram:gate=0",
                   "--served-model-name", HOSTILE, "--cache-tokens", "8192")
    for number in range(32):
        serving.post(server.url + "/v1/chat/completions", {
            "messages": [{"role": "user", "content": QUOTE}], "max_tokens": 24, "seed": number, "ignore_eos": True,
            "traffic_class": "<b>nightly</b>"})
    return server


def operate(open_page, server, *settings):
    page = open_page(server.url, *settings)
    page.click("#to-operate")
    expect(page.locator("#live-models dd.preemptions").first).not_to_have_text("–")
    return page


def give_key(page, key):
    page.fill("#admin-key", key)
    page.keyboard.press("Enter")


def two_digits(number):
    """As the page has it: what lies in the middle is rounded up, not to what is even."""
    return str(decimal.Decimal(number).quantize(decimal.Decimal("0.01"), decimal.ROUND_HALF_UP))


def post_some(server, count):
    for number in range(count):
        serving.post(server.url + "/v1/completions", {"prompt": QUOTE, "max_tokens": 16, "seed": number})


@pytest.mark.parametrize("view", list(VIEWS))
def test_live_figures_are_the_servers(operated, open_page, screenshot, view):
    page = operate(open_page, operated, view)
    post_some(operated, 2)
    expect(page.locator(".chart path.first").first).to_have_attribute("d", re.compile("L"))
    page.reload()  # figures since the start
    expect(page.locator("#live-models h3")).to_contain_text(HOSTILE)
    drafts = metric(operated, "vllm:spec_decode_num_drafts_total")
    accepted = metric(operated, "vllm:spec_decode_num_accepted_tokens_total")
    assert drafts > 0
    expect(page.locator("dd.perDraft")).to_have_text(two_digits(accepted / drafts))
    at_first = re.search(r'accepted_tokens_per_pos_total\{.*position="0"\} (\d+)', serving.urlopen(operated.url + "/metrics"))
    shown = page.locator("#live-models .depths .value").first
    expect(shown).to_have_text(f"{int(100 * int(at_first[1]) / drafts + 0.5)} %")
    row = page.locator("#live-models tbody tr", has_text="<b>nightly</b>")
    speedup = re.search(r'speculation_speedup\{.*nightly.*\} (\S+)', serving.urlopen(operated.url + "/metrics"))
    expect(row.locator("td").nth(1)).to_have_text(two_digits(float(speedup[1])))
    give_key(page, "order")
    expect(page.locator("#admin-models .card")).to_have_count(1)
    assert page.locator("img, b").count() == 0
    looks_well(page, screenshot, f"operate_{view}")
    assert page.evaluate(NAMELESS) == []


def test_rate_is_the_difference_of_counters(operated, open_page):
    page = operate(open_page, operated)

    def is_counted():
        post_some(operated, 1)
        rate = page.locator("dd.rate").text_content()
        return rate != "–" and float(rate) > 0

    wait_for(is_counted, what="a rate")
    assert "now" in page.locator(".chart svg").first.get_attribute("aria-label")


def test_says_how_to_compare(server, open_page):
    page = operate(open_page, server)
    expect(page.locator("#live-models")).to_contain_text("--holdback")
    give_key(page, "any")
    expect(page.locator("#admin-error")).to_contain_text("--admin-key-file")


def test_wrong_admin_key(operated, open_page):
    page = operate(open_page, operated)
    give_key(page, "another")
    expect(page.locator("#admin-error")).to_contain_text("HTTP status 401")
    assert page.locator("#admin-models .card").count() == 0
    give_key(page, "order")
    expect(page.locator("#admin-models .card")).to_have_count(1)
    expect(page.locator("#admin-error")).to_be_hidden()
    assert page.evaluate("[localStorage.length, sessionStorage.length, document.cookie]") == [0, 0, ""]
    assert page.input_value("#admin-key") == ""
    page.click("#admin-forget")
    expect(page.locator("#admin-models .card")).to_have_count(0)


def test_canary_by_page(operated, open_page, screenshot):
    page = operate(open_page, operated)
    page.on("dialog", lambda dialog: dialog.accept())
    give_key(page, "order")
    answer = page.locator("#admin-models .answer")
    page.fill("input[name=speculate]", "nothing")
    page.keyboard.press("Enter")
    expect(answer).to_contain_text("'nothing'")
    page.fill("input[name=speculate]", "lookahead")
    page.fill("input[name=steps]", "0.5, 0.2")
    page.keyboard.press("Enter")
    expect(answer).to_contain_text("rise")
    page.fill("input[name=steps]", "0.5, 0.7")
    page.click("text=Begin a canary")
    expect(page.locator("#admin-models .canary")).to_contain_text("On trial: lookahead, for 50 %")
    post_some(operated, 8)  # so few that none of it decides about the trial
    status = json.load(urllib.request.urlopen(urllib.request.Request(
        operated.url + "/admin/status", headers={"Authorization": "Bearer order"}), timeout=60))
    groups = status["models"][0]["canary"]
    counts = [str(groups[name]["replies"]) for name in ("candidate", "present")]
    assert counts != ["0", "0"]
    expect(page.locator("#admin-models tbody tr td:nth-child(2)")).to_have_text(counts)
    screenshot(page, "operate_canary")
    page.click("text=Promote")
    expect(answer).to_contain_text("Promote: done.")
    expect(page.locator("#admin-models .summary")).to_contain_text("present setting: lookahead")
    page.click("text=Roll back")
    expect(answer).to_contain_text("Roll back: done.")
    expect(page.locator("#admin-models .summary")).to_contain_text("present setting: ngram")
    page.click("text=Roll back")
    expect(answer).to_contain_text("nothing to roll back")
    page.click("#admin-models >> text=Unload")
    expect(answer).to_contain_text("the server was started with it, to stay")
    expect(page.locator("#admin-models .summary")).to_contain_text("loaded ·")


def test_loads_and_unloads(program, model_file, open_page, tmp_path):
    (tmp_path / "admin.key").write_text("order\n")
    models = {name: {"model": model_file, "cache-tokens": 4096} for name in ("first", "second")}
    (tmp_path / "models.json").write_text(json.dumps(models))
    server = serving.Server(program, None, "--models", str(tmp_path / "models.json"),
                            "--admin-key-file", str(tmp_path / "admin.key"))
    try:
        page = open_page(server.url)
        page.on("dialog", lambda dialog: dialog.accept())
        page.click("#to-operate")
        give_key(page, "order")
        second = page.locator("#admin-models .card", has_text="second")
        for order, status in (("Load", "loaded ·"), ("Unload", "unloaded")):
            second.get_by_role("button", name=f"{order}: second", exact=True).click()
            expect(second.locator(".answer")).to_contain_text(f"{order}: done.")
            expect(second.locator(".summary")).to_contain_text(status)
    finally:
        assert server.stop() == 0


def test_request_with_its_last_tree(server, open_page):
    page = operate(open_page, server)
    page.fill("#trial-prompt", QUOTE)
    page.keyboard.press("Enter")
    expect(page.locator("#tried .draft .chip").first).to_be_visible()
    assert page.locator("#tried .token.accepted").count() > 3
    opened = page.locator("#tried .round[aria-expanded=true]")
    expect(opened).to_have_count(1)


def test_load_test_ends_with_a_ratio(operated, open_page, screenshot):
    page = operate(open_page, operated)
    asked = []
    page.on("request", lambda r: asked.append(r.post_data_json) if r.url.endswith("/v1/completions") else None)
    before = metric(operated, "vllm:generation_tokens_total")
    page.fill("#asked-tokens", "16")
    page.fill("#load-clients", "2")
    page.fill("#load-seconds", "4")
    page.click("#load-start")
    expect(page.locator("#load-stop")).to_be_visible()
    expect(page.locator("#load-note")).to_have_text("Ended.")
    ratio = float(re.search(r"With speculation ([\d.]+) times", page.locator("#load-ratio").text_content())[1])
    cells = page.locator("#load-rows tbody tr").nth(1).locator("td").all_text_contents()
    # Both have three digits at least, and the ratio two behind the point.
    assert abs(float(cells[0]) / float(cells[1]) - ratio) <= 0.0051 + 0.0101 * ratio
    assert page.locator("#load-rows tbody tr").count() == 6
    assert cells[2] == f"{ratio:.2f}"
    # Between tokens that a slow browser reads at once there is no time, and no ratio then.
    assert "–" not in "".join(page.locator("#load-rows td:not(:last-child)").all_text_contents())
    off = [body for body in asked if body.get("speculation") == "off"]
    on = [body for body in asked if "speculation" not in body]
    assert len(off) > 2 and len(on) > 2 and len(off) + len(on) == len(asked)
    assert not {body["cache_salt"] for body in off} & {body["cache_salt"] for body in on}
    made = sum(body["max_tokens"] * len(body["prompt"]) for body in asked)
    wait_for(lambda: is_idle(operated), what="the figures of the last reply")
    assert metric(operated, "vllm:generation_tokens_total") - before == made
    screenshot(page, "operate_load")


def test_load_test_of_many_stops(operated, open_page):
    page = operate(open_page, operated)
    asked = []
    page.on("request", lambda r: asked.append(r.post_data_json) if r.url.endswith("/v1/completions") else None)
    page.fill("#load-clients", "10")
    page.fill("#load-seconds", "300")
    page.click("#load-start")
    expect(page.locator("dd.running")).to_have_text("10")
    first = asked[2:6]  # after those that warm up
    assert sorted(len(body["prompt"]) for body in first) == [2, 2, 3, 3]
    page.click("#load-stop")
    expect(page.locator("#load-note")).to_contain_text("Stopped.")
    wait_for(lambda: is_idle(operated), what="an end of the requests")
    page.fill("#load-clients", "65")
    page.click("#load-start")
    expect(page.locator("#load-stop")).to_be_hidden()


def test_load_test_shows_what_is_refused(operated, open_page):
    page = operate(open_page, operated)
    page.route("**/v1/completions", lambda route: route.fulfill(
        status=429, content_type="application/json", body='{"error": {"message": "Wait <b>a</b> while."}}'))
    page.click("#load-start")
    expect(page.locator("#load-error")).to_have_text("The test ended: Wait <b>a</b> while. (HTTP status 429)")


def test_operator_view_without_figures(fake, open_page):
    page = open_page(fake().url)
    page.goto(page.url + "#operate")
    expect(page.locator("#live-note")).to_contain_text("No new figures: There is no such page. (HTTP status 404)")
    assert page.locator("#live-models .card").count() == 0
    page.click("#to-ask")
    expect(page.locator("#prompt")).to_be_visible()
    expect(page.locator("#operate-view")).to_be_hidden()
