"""The processes of `eldr up`, wired to each other."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

import httpx

from controlplane.cli.engines import Engine, SimulatedEngine, WorkersPlan
from controlplane.cli.launch import Children, answers, take_port
from controlplane.cli.run_folder import FolderOfOtherModel, Keys, Processes, Run, RunFolder
from controlplane.client import ControlPlaneClient
from controlplane.client_transport import ClientError
from controlplane.domain.alerts import CreateApiKey, Role
from controlplane.services.manage_keys import make_key
from controlplane.services.record_change import Change
from controlplane.storage.database import Database
from controlplane.storage.repositories.keys import has_usable_key
from controlplane.storage.schema import migrate
from eldr_runtime.cli.console import say
from eldr_runtime.routing_config import WorkerState

ROUTER = "router-1"
ACTOR = "eldr up"
START_TIMEOUT_SECONDS = 90.0
# A demo of minutes needs in seconds what a production fleet does in minutes.
DEMO_ENVIRONMENT = {
    "ELDR_EXPERIMENT_SETTLE_SECONDS": "8",
    "ELDR_DRIFT_CHECK_SECONDS": "5",
    "ELDR_DRIFT_WINDOW_SECONDS": "30",
    "ELDR_REFIT_COOLDOWN_SECONDS": "60",
    "ELDR_REFIT_MINIMUM_SAMPLES": "600",
    "ELDR_CALIBRATION_SPLITS": "3",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StackSettings:
    """What `eldr up` starts; a port of 0 takes a free one."""

    folder: RunFolder
    engine: Engine = field(default_factory=SimulatedEngine)
    n_prefill: int = SimulatedEngine.USUAL.n_prefill
    n_decode: int = SimulatedEngine.USUAL.n_decode
    has_load: bool = False
    rate_per_second: float = SimulatedEngine.USUAL.rate_per_second
    output_tokens: int = SimulatedEngine.USUAL.output_tokens
    has_dashboard: bool = True
    control_plane_port: int = 8790
    router_port: int = 8780
    dashboard_port: int = 8501


class Stack:
    """A running stack."""

    def __init__(self, settings: StackSettings, keys: Keys) -> None:
        self.settings = settings
        self.keys = keys
        self.children = Children()
        self.fleet = settings.engine.fleet()
        self.ports: dict[str, int] = {}

    def url(self, name: str) -> str:
        """Return the address of one process."""
        return f"http://127.0.0.1:{self.ports[name]}"

    def client(self, secret: str) -> ControlPlaneClient:
        """Return a client of the control plane with this key."""
        return ControlPlaneClient(self.url("controlplane"), secret, self.fleet.name)

    def run(self) -> Run:
        """Return where everything listens."""
        has_load, has_dashboard = self.settings.has_load, self.settings.has_dashboard
        return Run(
            fleet=self.fleet.name,
            control_plane_url=self.url("controlplane"),
            router_url=self.url("router"),
            dashboard_url=self.url("dashboard") if has_dashboard else None,
            fleet_control_url=self.url("fleet") if "fleet" in self.ports else None,
            load_control_url=self.url("load") if has_load else None,
        )

    def start(self) -> None:
        """Start what the settings ask for, and note in the folder where it is."""
        self.start_control_plane()
        self.start_router()
        self.start_fleet()
        if self.settings.has_load:
            self.start_load()
        if self.settings.has_dashboard:
            self.start_dashboard()
        self.settings.folder.write_run(self.run())

    def start_control_plane(self) -> None:
        """Start the control plane and wait until it is ready; make the fleet on the first start."""
        port = self._take_port("controlplane", self.settings.control_plane_port)
        environment = {
            "ELDR_DATABASE_URL": self.settings.folder.database_url,
            "ELDR_PORT": port,
            "ELDR_LOG_LEVEL": "warning",
            **DEMO_ENVIRONMENT,
        }
        self._start("controlplane", ["controlplane"], environment, ready="/readyz")
        with self.client(self.keys.admin) as client:
            self.ensure_fleet(client)

    def start_router(self) -> None:
        """Start the router; it is ready once the fleet's workers are."""
        arguments = ["router", "--fleet", self.fleet.name, "--data", str(self.settings.folder.router_data)]
        arguments += ["--port", self._take_port("router", self.settings.router_port), "--router-id", ROUTER]
        arguments += ["--control-plane", self.url("controlplane")]
        self._start("router", arguments, {"ELDR_API_KEY": self.keys.service}, ready="/livez")

    def start_fleet(self) -> None:
        """Start the workers and wait until the control plane has all of them ready, and so the router."""
        settings = self.settings
        plans = settings.engine.workers(settings.n_prefill, settings.n_decode)
        for plan in plans:
            self._start_workers(plan)
        for plan in plans:
            url = f"{self.url(plan.name)}{plan.ready}"
            self._wait(f"starting {plan.name}", url, settings.engine.start_seconds)
        with self.client(self.keys.operator) as client:
            self.children.wait_for(
                "registering the workers", lambda: self._has_all_ready(client), START_TIMEOUT_SECONDS
            )
        self._wait("the router", f"{self.url('router')}/readyz")

    def start_load(self) -> None:
        """Start the load generator."""
        arguments = ["load", *self.settings.engine.load_arguments(), "--router", self.url("router")]
        arguments += ["--rate", f"{self.settings.rate_per_second:g}"]
        arguments += ["--output-tokens", str(self.settings.output_tokens)]
        arguments += ["--control-port", self._take_port("load"), "--json"]
        self._start("load", arguments, {}, ready="/status")

    def start_dashboard(self) -> None:
        """Start the dashboard, signed in with the operator's key."""
        arguments = ["dashboard", "--control-plane", self.url("controlplane"), "--fleet", self.fleet.name]
        arguments += ["--port", self._take_port("dashboard", self.settings.dashboard_port)]
        environment = {"ELDR_DASHBOARD_API_KEY": self.keys.operator}
        self._start("dashboard", arguments, environment, ready="/_stcore/health")

    def _start_workers(self, plan: WorkersPlan) -> None:
        arguments = [*plan.arguments, plan.port_option, self._take_port(plan.name)]
        arguments += ["--fleet", self.fleet.name, "--control-plane", self.url("controlplane")]
        if plan.engine_arguments:
            arguments += ["--", *plan.engine_arguments]
        environment = {**plan.environment, "ELDR_API_KEY": self.keys.service}
        self._start_process(plan.name, arguments, environment, plan.stop_seconds)

    def _has_all_ready(self, client: ControlPlaneClient) -> bool:
        n_ready = sum(worker.state is WorkerState.READY for worker in client.workers())
        return n_ready >= self.settings.n_prefill + self.settings.n_decode

    def _start(self, name: str, arguments: list[str], environment: dict[str, str], *, ready: str) -> None:
        self._start_process(name, arguments, environment)
        self._wait(f"starting {name}", f"{self.url(name)}{ready}")

    def _start_process(
        self, name: str, arguments: list[str], environment: dict[str, str], stop_seconds: float = 15.0
    ) -> None:
        folder = self.settings.folder
        self.children.start(
            name,
            arguments,
            log_file=folder.log_file(name),
            environment=environment,
            stop_seconds=stop_seconds,
        )
        folder.write_processes(Processes(pids=self.children.pids()))

    def ensure_fleet(self, client: ControlPlaneClient) -> None:
        """Make the fleet on the first start; later its workers must be of the same model."""
        made = {fleet.name: fleet for fleet in client.fleets()}.get(self.fleet.name)
        if made is None:
            client.create_fleet(self.fleet)
        elif made.shape != self.fleet.shape:
            folder = self.settings.folder.path
            raise FolderOfOtherModel(
                f"fleet {made.name!r} in {folder} serves {made.shape}, not {self.fleet.shape}: "
                "give another folder with --data"
            )

    def _take_port(self, name: str, wanted: int = 0) -> str:
        """Choose a port only now: one chosen early may be taken by a connection meanwhile."""
        self.ports[name] = take_port(self.ports.get(name, wanted), f"--{name}-port")
        return str(self.ports[name])

    def _wait(self, what: str, url: str, timeout_seconds: float = START_TIMEOUT_SECONDS) -> None:
        self.children.wait_for(what, lambda: answers(url), timeout_seconds)


@contextmanager
def running_stack(settings: StackSettings) -> Iterator[Stack]:
    """Start everything, yield, and end everything."""
    folder = settings.folder
    folder.make()
    with folder.in_use():
        stack = Stack(settings, prepare_database(folder))
        try:
            stack.start()
            yield stack
        except (ClientError, httpx.TransportError):
            stack.children.check()  # that a process ended is the better reason
            raise
        finally:
            stack.children.stop()
            folder.remove_run()


def prepare_database(folder: RunFolder) -> Keys:
    """Bring the schema up to date; on the first start make an admin, an operator and a service key."""
    database = Database(folder.database_url)
    now = datetime.now(UTC)
    try:
        migrate(database)
        with database.write() as session:
            if has_usable_key(session, Role.ADMIN, now):
                return folder.read_keys()
            made = _make_keys(Change(session=session, actor=ACTOR, request_id="first-start", now=now))
            # Before the commit: keys in the database whose secrets nobody has would lock everybody out.
            folder.write_keys(made)
        say(f"admin key, shown this once: {made.admin}")
        return made
    finally:
        database.close()


def _make_keys(change: Change) -> Keys:
    def make(name: str, role: Role) -> str:
        return make_key(change, CreateApiKey(name=name, role=role, reason="first start of eldr up")).secret

    return Keys(
        admin=make("admin", Role.ADMIN),
        operator=make("operator", Role.OPERATOR),
        service=make("routers-and-workers", Role.SERVICE),
    )
