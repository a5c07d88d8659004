// The steps of an execution as a picture: what comes after what, layer by layer, and where each stands.
import type { NodeView } from "../api/schema";
import { visible } from "../format";
import { type Key, useWords } from "../i18n";
import { Mark } from "./basics";

/** A larger graph is read better as a list. */
export const DRAWN_MAX = 200;

const WIDTH = 148;
const HEIGHT = 34;
const GAP_X = 44;
const GAP_Y = 14;
const LETTERS = 17;

export interface Placed {
  node: NodeView;
  x: number;
  y: number;
}

/** Each node in the layer behind the last one it comes after; within a layer as near as can be to those before it. */
export function layout(nodes: readonly NodeView[]): { placed: Map<string, Placed>; width: number; height: number } {
  const byId = new Map(nodes.map((node) => [node.nodeId, node]));
  const layers = new Map<string, number>();
  const layerOf = (id: string): number => {
    const known = layers.get(id);
    if (known !== undefined) return known;
    // Set before it is known: a server that sent a circle must not hang the page.
    layers.set(id, 0);
    const before = (byId.get(id)?.after ?? []).filter((name) => byId.has(name));
    const layer = before.length === 0 ? 0 : 1 + Math.max(...before.map(layerOf));
    layers.set(id, layer);
    return layer;
  };
  const columns: NodeView[][] = [];
  for (const node of nodes) {
    const layer = layerOf(node.nodeId);
    columns[layer] ??= [];
    columns[layer].push(node);
  }
  const placed = new Map<string, Placed>();
  const tallest = Math.max(1, ...columns.map((column) => column?.length ?? 0));
  columns.forEach((column, layer) => {
    const wanted = (node: NodeView) => {
      const rows = node.after.map((name) => placed.get(name)?.y).filter((y): y is number => y !== undefined);
      return rows.length === 0 ? 0 : rows.reduce((sum, y) => sum + y, 0) / rows.length;
    };
    const sorted = layer === 0 ? column : [...column].sort((a, b) => wanted(a) - wanted(b));
    const top = ((tallest - column.length) * (HEIGHT + GAP_Y)) / 2;
    sorted.forEach((node, row) => {
      placed.set(node.nodeId, { node, x: layer * (WIDTH + GAP_X), y: top + row * (HEIGHT + GAP_Y) });
    });
  });
  const width = columns.length * (WIDTH + GAP_X) - GAP_X;
  return { placed, width, height: tallest * (HEIGHT + GAP_Y) - GAP_Y };
}

const colours: Record<string, string> = {
  waiting: "text-soft",
  running: "text-time",
  succeeded: "text-good",
  dead: "text-bad",
};

export function Graph({ nodes }: { nodes: readonly NodeView[] }) {
  const { t } = useWords();
  if (nodes.length > DRAWN_MAX) {
    return <p className="px-3.5 py-3 text-faint">{t("execution.toolarge", { count: nodes.length })}</p>;
  }
  const { placed, width, height } = layout(nodes);
  const edges = [...placed.values()].flatMap(({ node, x, y }) =>
    node.after.flatMap((name) => {
      const from = placed.get(name);
      return from ? [{ key: `${name}→${node.nodeId}`, from, to: { x, y } }] : [];
    }),
  );
  return (
    <div className="overflow-x-auto p-3.5">
      <svg
        role="img"
        aria-label={t("execution.graph", { count: nodes.length })}
        viewBox={`-2 -2 ${width + 4} ${height + 4}`}
        style={{ width: width + 4, height: height + 4 }}
        data-testid="graph"
      >
        {edges.map(({ key, from, to }) => {
          const [x1, y1, x2, y2] = [from.x + WIDTH, from.y + HEIGHT / 2, to.x, to.y + HEIGHT / 2];
          const half = (x1 + x2) / 2;
          return (
            <path
              key={key}
              d={`M${x1} ${y1}C${half} ${y1} ${half} ${y2} ${x2} ${y2}`}
              className="text-line-strong"
              fill="none"
              stroke="currentColor"
              strokeWidth="1.2"
            />
          );
        })}
        {[...placed.values()].map(({ node, x, y }) => (
          <g key={node.nodeId} className={colours[node.state] ?? "text-faint"} data-node={node.nodeId}>
            <title>{`${visible(node.nodeId)}: ${t(`state.${node.state}` as Key)}`}</title>
            <rect x={x} y={y} width={WIDTH} height={HEIGHT} rx="6" fill="none" stroke="currentColor" />
            <svg aria-hidden="true" x={x + 9} y={y + HEIGHT / 2 - 6} width="12" height="12">
              <Mark state={node.state} />
            </svg>
            <text x={x + 27} y={y + HEIGHT / 2 + 4} className="fill-ink text-xs">
              {short(visible(node.nodeId))}
            </text>
          </g>
        ))}
      </svg>
    </div>
  );
}

function short(name: string): string {
  const letters = [...name];
  return letters.length > LETTERS ? `${letters.slice(0, LETTERS - 1).join("")}…` : name;
}
