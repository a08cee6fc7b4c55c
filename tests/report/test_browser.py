"""The page in a headless browser without a network, on a phone and a desktop, light and dark, and on paper."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from axe_playwright_python.base import AXE_FILE_PATH
from playwright.sync_api import sync_playwright

from compatstore.html import visible
from compatstore.report.files import write_report
from compatstore.report.judging import write_judging_page
from compatstore.upgrade.estimates.side_by_side import Case

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
QUIET = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
]
LOOKS = [(width, scheme) for width in (390, 1280) for scheme in ("light", "dark")]
# Elements that reach out of the window and lie in nothing that scrolls, and text that is wider than its own box.
CLIPPED = """() => {
  const page = document.documentElement, wide = [];
  for (const element of document.querySelectorAll("body *")) {
    const box = element.getBoundingClientRect();
    if (!box.width || !box.height || element.closest(".skip")) continue;
    const held = element.closest(".scroll") && element !== element.closest(".scroll");
    if (!held && (box.right > page.clientWidth + 1 || box.left < -1)) wide.push(element.tagName + ": " + box.right);
    const svg = element.closest("svg");
    if (svg && element !== svg) {
      const whole = svg.getBoundingClientRect();
      if (box.left < whole.left - 1 || box.right > whole.right + 1 || box.bottom > whole.bottom + 1)
        wide.push("outside of its chart: " + element.outerHTML.slice(0, 80));
    }
  }
  return {scroll: page.scrollWidth, window: page.clientWidth, wide};
}"""


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield launched
        launched.close()


class Look:
    """A page as it was opened, with all that it asked for, said or raised."""

    def __init__(self, browser, path, width, scheme):
        self.context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True)
        self.tab, self.asked, self.said = self.context.new_page(), [], []
        self.tab.on("request", lambda request: self.asked.append(request.url))
        self.tab.on("console", lambda message: self.said.append(message.text))
        self.tab.on("pageerror", lambda error: self.said.append(str(error)))
        self.tab.on("dialog", lambda dialog: (self.said.append(dialog.message), dialog.dismiss()))
        self.tab.goto(path.as_uri(), wait_until="load")
        self.own = path.as_uri()

    def requests(self):
        """What left the page: not the page itself, nor a picture that is in it."""
        return [url for url in self.asked if url != self.own and not url.startswith("data:")]


@pytest.fixture(scope="module")
def pages(pictured, taught, attacked, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    reports = {"pictured": pictured, "taught": taught, "attacked": attacked}
    judged = {"judged": pictured, "judged attack": attacked}
    for name, report in judged.items():
        write_judging_page(folder / f"{name}.html", cases_of(report), name)
    return {
        **{name: write_report(report, folder / f"{name}.html")[0] for name, report in reports.items()},
        **{name: folder / f"{name}.html" for name in judged},
    }


def cases_of(report):
    """The queries of a report as cases of a blind comparison."""
    changes = (*report.details.changes.worst, *report.details.changes.best)
    return [Case(query=each.query, left=each.found_before, right=each.found_after) for each in changes]


@pytest.fixture
def look(browser, pages):
    looks = []

    def opened(name, width=390, scheme="light"):
        looks.append(Look(browser, pages[name], width, scheme))
        if "SCREENSHOTS" in os.environ:
            place = Path(os.environ["SCREENSHOTS"]) / f"{name}-{width}-{scheme}.png"
            looks[-1].tab.screenshot(path=str(place), full_page=True)
        return looks[-1]

    yield opened
    for seen in looks:
        seen.context.close()


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
@pytest.mark.parametrize("name", ["pictured", "taught", "attacked", "judged", "judged attack"])
def test_nothing_is_clipped_asked_for_or_complained_about(look, name, width, scheme):
    seen = look(name, width, scheme)
    found = seen.tab.evaluate(CLIPPED)
    assert found["scroll"] <= found["window"] == width
    assert found["wide"] == []
    assert seen.requests() == []
    assert seen.said == []
    dark = seen.tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(14, 17, 22)"
    assert dark == (scheme == "dark")


@pytest.mark.parametrize("width", [390, 1280])
def test_a_wide_table_scrolls_in_its_own_box_and_has_the_focus_for_it(look, width):
    tab = look("pictured", width).tab
    boxes = tab.evaluate(
        "[...document.querySelectorAll('.scroll')].map(b => [b.scrollWidth > b.clientWidth, b.tabIndex, b.scrollLeft])"
    )
    assert all(place == 0 for _, place, _ in boxes)
    assert any(wide for wide, _, _ in boxes) == (width == 390)
    assert tab.evaluate(
        "(() => { const b = document.querySelector('.scroll'); b.scrollLeft = 9999; return b.scrollLeft > 0 })()"
    ) == (width == 390)


def test_an_attack_stays_text_whatever_is_touched(look, attacked):
    seen = look("attacked")
    tab = seen.tab
    said = tab.evaluate("document.body.textContent")
    for change in (*attacked.details.changes.worst, *attacked.details.changes.best):
        assert visible(change.query.id) in said
    assert tab.evaluate(
        "document.querySelectorAll('script, iframe, object, embed, link, base, form, input, b, image').length"
    ) == 0  # fmt: skip
    handlers = "[...document.querySelectorAll('*')].flatMap(e => e.getAttributeNames()).filter(n => n.startsWith('on'))"
    assert tab.evaluate(handlers) == []
    for link in tab.query_selector_all("nav a"):
        link.click()
    tab.evaluate("document.querySelectorAll('*').forEach(e => e.dispatchEvent(new MouseEvent('mouseover')))")
    assert tab.title() == "Upgrade of v1 to v2: ready - compatstore"
    assert len(tab.query_selector_all("h1")) == 1
    assert (seen.requests(), seen.said) == ([], [])


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
@pytest.mark.parametrize("name", ["pictured", "taught", "judged"])
def test_axe_finds_nothing(look, name, width, scheme):
    """Headings, names of regions, tables, alternative texts, and contrast in both schemes (WCAG 2.2 AA and more)."""
    tab = look(name, width, scheme).tab
    tab.evaluate(Path(AXE_FILE_PATH).read_text(encoding="utf-8"))
    found = tab.evaluate("axe.run()")
    assert [(broken["id"], broken["nodes"][0]["html"][:200]) for broken in found["violations"]] == []
    assert {"color-contrast", "image-alt", "html-has-lang", "heading-order"} <= {rule["id"] for rule in found["passes"]}


def test_on_paper_it_is_light_whole_and_without_its_contents(look):
    tab = look("taught", 1280, "dark").tab
    tab.emulate_media(media="print")
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert tab.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert tab.evaluate(
        "[...document.querySelectorAll('.scroll')].every(b => getComputedStyle(b).overflowX === 'visible')"
    )
    assert tab.pdf(format="A4").startswith(b"%PDF")


@pytest.mark.parametrize("name", ["judged", "judged attack"])
def test_answers_of_a_comparison_are_downloaded_as_a_file(look, pictured, attacked, name, tmp_path):
    cases = cases_of(pictured if name == "judged" else attacked)
    seen = look(name)
    tab = seen.tab
    for place, answer in enumerate(["left", "right", "same"]):
        tab.locator("article").nth(place).locator(f"button[value={answer}]").click()
    tab.locator("article").first.locator("button[value=right]").click()
    tab.reload()
    assert tab.locator("#count").text_content() == f"3 of {len(cases)} answered"
    assert tab.locator("article").first.locator("[aria-pressed=true]").get_attribute("value") == "right"
    with tab.expect_download() as download:
        tab.locator("#download").click()
    download.value.save_as(tmp_path / "answers.json")
    read = json.loads((tmp_path / "answers.json").read_text(encoding="utf-8"))
    given = zip(cases, ["right", "right", "same"], strict=False)
    assert read == {"digest": name, "answers": {case.query.id: answer for case, answer in given}}
    assert download.value.suggested_filename == "answers.json"
    assert [url for url in seen.requests() if not url.startswith("blob:")] == []
    assert seen.said == []
    assert tab.title() == "Which list is better? - compatstore"


@pytest.mark.parametrize("width", [390, 1280])
def test_both_lists_of_a_comparison_stand_side_by_side(look, width):
    tab = look("judged", width).tab
    sides = tab.evaluate(
        "[...document.querySelector('.sides').children].map(e => { const b = e.getBoundingClientRect();"
        " return [b.left, b.right, b.top] })"
    )
    (left, left_end, left_top), (right, _, right_top) = sides
    assert left < left_end < right
    assert left_top == right_top
    assert tab.evaluate("[...document.querySelectorAll('button')].every(b => b.getBoundingClientRect().height >= 44)")
    assert tab.locator("article img").count() > 10
