// The pages there are, in the order in which they are listed.
import {
  Activity,
  CircleOff,
  Gauge,
  Layers,
  ListFilter,
  type LucideIcon,
  Network,
  RefreshCw,
  Skull,
  TrendingUp,
  Workflow,
} from "lucide-react";
import type { Key } from "../i18n";

export interface PageEntry {
  to: string;
  name: Key;
  icon: LucideIcon;
  /** The second letter after `g`. */
  key: string;
}

export const PAGES: readonly PageEntry[] = [
  { to: "/", name: "nav.overview", icon: Gauge, key: "o" },
  { to: "/retries", name: "nav.retries", icon: RefreshCw, key: "t" },
  { to: "/jobs", name: "nav.jobs", icon: ListFilter, key: "j" },
  { to: "/errors", name: "nav.errors", icon: CircleOff, key: "e" },
  { to: "/dead", name: "nav.dead", icon: Skull, key: "d" },
  { to: "/executions", name: "nav.executions", icon: Workflow, key: "x" },
  { to: "/queues", name: "nav.queues", icon: Layers, key: "q" },
  { to: "/destinations", name: "nav.destinations", icon: Network, key: "n" },
  { to: "/policies", name: "nav.policies", icon: TrendingUp, key: "p" },
  { to: "/activity", name: "nav.activity", icon: Activity, key: "a" },
];
