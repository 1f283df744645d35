import pytest
from fastapi.testclient import TestClient

from gnnretrieval.errors import InputError
from gnnretrieval.serve import ServeSettings, access, create_app
from gnnretrieval.serve.access import Names, Rate, read_token

TOKEN = "0123456789abcdef"
BEARER = {"authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def guarded(retriever):
    with TestClient(create_app(retriever, ServeSettings(token=TOKEN))) as client:
        yield client


@pytest.mark.parametrize("path", ["/search?question=a", "/passages/p03", "/graph", "/examples", "/metrics", "/no/such"])
def test_without_the_token_nothing_of_the_index_is_told(guarded, path):
    for headers in (
        {},
        {"authorization": TOKEN},
        {"authorization": "Bearer "},
        {"authorization": f"Basic {TOKEN}"},
        {"authorization": f"Bearer {TOKEN}0"},
        {"authorization": "Bearer é"},
    ):
        response = guarded.get(path, headers={name: value.encode() for name, value in headers.items()})
        assert response.status_code == 401
        assert response.json()["error"]["code"] == "no_token"
        assert response.headers["www-authenticate"] == "Bearer"
        assert "index-version" not in response.headers
    assert guarded.get(path, headers=BEARER).status_code == (404 if path == "/no/such" else 200)
    assert guarded.post("/reload").status_code == 401


def test_health_tells_all_to_who_has_the_token_and_else_only_that_it_answers(guarded):
    told = guarded.get("/health")
    assert told.json() == {"status": "ready"}
    assert "index-version" not in told.headers
    assert guarded.get("/health", headers=BEARER).json()["passages"] == 40


@pytest.mark.parametrize("path", ["/", "/map", "/docs", "/openapi.json", "/static/explorer.js"])
def test_the_pages_need_no_token_to_ask_for_one(guarded, path):
    assert guarded.get(path).status_code == 200


def test_the_page_has_a_field_for_the_token_and_its_policy_stays_strict(guarded):
    page = guarded.get("/")
    assert '<input id="token" type="password" autocomplete="off"' in page.text
    assert "unsafe-inline" not in page.headers["content-security-policy"]
    assert 'sessionStorage.setItem("token"' in guarded.get("/static/asking.js").text


def test_the_token_is_compared_in_constant_time(guarded, monkeypatch):
    asked = []
    monkeypatch.setattr(access.hmac, "compare_digest", lambda one, other: asked.append((one, other)) or False)
    assert guarded.get("/graph", headers=BEARER).status_code == 401
    assert asked == [(TOKEN.encode(), TOKEN.encode())]


def test_settings_do_not_show_the_token():
    assert TOKEN not in repr(ServeSettings(token=TOKEN))


def test_a_token_is_one_line_that_others_cannot_read(tmp_path):
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n", encoding="utf-8")
    file.chmod(0o600)
    assert read_token(file) == TOKEN
    for mode in (0o604, 0o602, 0o644):
        file.chmod(mode)
        with pytest.raises(InputError, match=r"token: every user .* chmod 600"):
            read_token(file)
    file.chmod(0o640)
    for text in ("", "short", f"{TOKEN} {TOKEN}", f"{TOKEN}\n{TOKEN}", f"{TOKEN}ü", TOKEN * 1000):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(InputError, match="this is no token"):
            read_token(file)
    with pytest.raises(InputError, match="cannot be read"):
        read_token(tmp_path / "nothing")


def test_a_server_is_called_by_its_addresses_and_by_the_names_that_are_allowed():
    here = Names(("search.example.org",), on_loopback=True)
    network = Names(("search.example.org",), on_loopback=False)
    for host in ("localhost", "localhost.:80", "127.1.2.3", "[::1]:80", "[::ffff:127.0.0.1]", "SEARCH.example.org:443"):
        assert host in here
        assert host in network
    for host in ("", "evil.example", "127.0.0.1.evil.example", "[evil.example]", "search.example.org.evil.example"):
        assert host not in here
        assert host not in network
    for host in ("192.0.2.1:8000", "[2001:db8::1]:8000"):  # an address cannot be made to point elsewhere
        assert host not in here
        assert host in network


@pytest.mark.parametrize(
    ("given", "host"),
    [
        ("search.example.org:8443", "search.example.org:8443"),
        ("Search.Example.org.", "search.example.org"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("10.0.0.5", "10.0.0.5:80"),
        ("2001:db8::1", "[2001:db8::1]:80"),
        ("[2001:db8::1]:80", "[2001:db8::1]"),
    ],
)
def test_a_name_may_be_given_with_a_port_or_in_any_script(given, host):
    assert host in Names((given,), on_loopback=True)


@pytest.mark.parametrize(
    "given", ["https://search.example.org", "search.example.org/", "*", "*.example.org", "", "ü" * 99]
)
def test_what_no_host_header_gives_is_no_name(given):
    with pytest.raises(InputError, match=r"this is no name. Give the name alone, such as search.example.org"):
        Names((given,), on_loopback=True)


def test_a_client_asks_as_often_as_it_may_and_others_are_not_its_concern():
    now = [0.0]
    rate = Rate(2, clock=lambda: now[0])
    assert [rate.wait("192.0.2.1") for _ in range(22)] == [0.0] * 22
    assert rate.wait("192.0.2.1") == 0.5
    assert rate.wait("192.0.2.2") == 0.0
    now[0] = 0.5
    assert rate.wait("192.0.2.1") == 0.0
    assert rate.wait("192.0.2.1") > 0
    for number in range(22):
        assert rate.wait(f"2001:db8::{number:x}") == 0.0
    assert rate.wait("2001:db8::ffff:1") > 0  # one machine has all these addresses
    assert rate.wait("2001:db8:0:1::1") == 0.0


def test_the_clients_that_are_remembered_are_few(monkeypatch):
    monkeypatch.setattr(access, "_ADDRESSES", 100)
    rate = Rate(1, clock=lambda: 0.0)
    for number in range(1000):
        rate.wait(f"10.0.{number // 250}.{number % 250}")
    assert len(rate._left) == 100


def test_who_asks_too_often_is_told_when_to_ask_again(retriever):
    with TestClient(create_app(retriever, ServeSettings(rate=0.001))) as client:
        statuses = [client.get("/health").status_code for _ in range(21)]
        refused = client.get("/health")
    assert statuses[:20] == [200] * 20
    assert refused.status_code == 429
    assert refused.json()["error"]["code"] == "too_often"
    assert int(refused.headers["retry-after"]) > 0
